// The CUDA kernels of conv_gates: key heads (a warp each), value channels, gates, and at last the
// rows that stay: tail and row store.
#include <algorithm>
#include <cmath>
#include <vector>

#include "ops/launch.cuh"

namespace roost {
namespace {

using namespace cuda;

constexpr int kThreads = 128;
constexpr int kWarps = kThreads / 32;
constexpr int64_t kRunRows = 256;  // from here on a thread takes several rows

// Packed row p of span `span`.
struct PackedRow {
  int32_t span, p;
};

struct ConvCall {
  const uint16_t* qkv;
  const float *b, *a, *conv_weight, *a_log, *dt_bias;
  uint16_t *tail, *store_qkv;
  float *store_b, *store_a;
  uint16_t *q, *k, *v;
  float *kq, *beta, *decay;
  const DeltaSpan* spans;
  const PackedRow* rows;
  int64_t n_spans, n_rows, n_channels, n_kept_max;
  int key_heads, key_dim, value_heads, value_dim;
  float query_scale;  // Dk^-1/2
  bool keeps;  // every span is one new row, which stays in the tail: who convolves it keeps it
};

// Packed row p >= 0 of a span: the first n_replay lie in the row store, the others in the step.
template <class T>
__device__ __forceinline__ T packed_at(const DeltaSpan& span, int64_t p, int64_t i, int64_t width,
                                       const T* rows, const T* store, int64_t n_kept_max) {
  if (p < span.n_replay) return store[(span.slot * n_kept_max + p) * width + i];
  return rows[(span.first_row + p - span.n_replay) * width + i];
}

__device__ __forceinline__ uint16_t raw_at(const ConvCall& c, const DeltaSpan& span, int64_t p,
                                           int64_t channel) {
  if (p < 0) return c.tail[(span.slot * int64_t(3) + 3 + p) * c.n_channels + channel];
  return packed_at<uint16_t>(span, p, channel, c.n_channels, c.qkv, c.store_qkv, c.n_kept_max);
}

// What one output of the convolution is made of; loads of several are on their way together.
struct Taps {
  uint16_t raw[4];
  float4 weight;
};

__device__ __forceinline__ Taps load_taps(const ConvCall& c, const DeltaSpan& span, int64_t p,
                                          int64_t channel) {
  Taps taps;
#pragma unroll
  for (int i = 0; i < 4; ++i) taps.raw[i] = raw_at(c, span, p - 3 + i, channel);
  taps.weight = *reinterpret_cast<const float4*>(c.conv_weight + channel * 4);
  return taps;
}

// A channel behind convolution and activation, rounded.
__device__ __forceinline__ uint16_t convolved(const Taps& t) {
  const float weight[4] = {t.weight.x, t.weight.y, t.weight.z, t.weight.w};
  float sum = 0;
#pragma unroll
  for (int i = 0; i < 4; ++i) sum = fmaf(weight[i], f32_of(t.raw[i]), sum);
  return bf16_of(silu_f32(sum));
}

// The tail behind a span's only row. Nobody else reads the channel.
__device__ __forceinline__ void keep_only_row(const ConvCall& c, const DeltaSpan& span,
                                              const Taps& taps, int64_t channel) {
  uint16_t* tail = c.tail + span.slot * int64_t(3) * c.n_channels + channel;
#pragma unroll
  for (int r = 0; r < 3; ++r) tail[r * c.n_channels] = taps.raw[r + 1];
}

// A run of kRun packed rows: where each lies. Rows of one sequence that follow each other share the
// raw rows in front of them.
template <int kRun>
struct RowRun {
  PackedRow rows[kRun];
  DeltaSpan span;  // of the last row that was looked at
  int n;

  __device__ RowRun(const ConvCall& c, int64_t first)
      : span{}, n(int(min(int64_t(kRun), c.n_rows - first))) {
#pragma unroll
    for (int i = 0; i < kRun; ++i)
      if (i < n) rows[i] = c.rows[first + i];
  }
  // Calls store(packed row, value) with the channel of every row, convolved.
  template <class Store>
  __device__ __forceinline__ void for_each(const ConvCall& c, int64_t channel, const Store& store) {
    float w[4], raw[4];
#pragma unroll
    for (int tap = 0; tap < 4; ++tap) w[tap] = c.conv_weight[channel * 4 + tap];
#pragma unroll
    for (int i = 0; i < kRun; ++i) {
      if (i >= n) break;
      const PackedRow row = rows[i];
      const bool follows = i > 0 && row.span == rows[i - 1].span && row.p == rows[i - 1].p + 1;
      if (i == 0 || row.span != rows[i - 1].span) span = c.spans[row.span];
#pragma unroll
      for (int tap = 0; tap < 3; ++tap)
        raw[tap] = follows ? raw[tap + 1] : f32_of(raw_at(c, span, row.p - 3 + tap, channel));
      raw[3] = f32_of(raw_at(c, span, row.p, channel));
      float sum = 0;
#pragma unroll
      for (int tap = 0; tap < 4; ++tap) sum = fmaf(w[tap], raw[tap], sum);
      store(span.first_packed + row.p, bf16_of(silu_f32(sum)));
    }
  }
};

// A warp normalizes the query and the key of one head and row; its lanes hold the dims lane,
// lane + 32, …, of at most 32·kDims.
template <int kDims>
__device__ __forceinline__ void convolve_keys(const ConvCall& c, int64_t block) {
  const int lane = threadIdx.x % 32;
  const int64_t item = block * kWarps + threadIdx.x / 32;
  if (item >= c.n_rows * c.key_heads) return;
  const PackedRow row = c.rows[item / c.key_heads];
  const DeltaSpan span = c.spans[row.span];
  const int64_t head = item % c.key_heads, q_first = head * c.key_dim;
  const int64_t k_first = (c.key_heads + head) * int64_t(c.key_dim);
  Taps q_taps[kDims], k_taps[kDims];
#pragma unroll
  for (int d = 0; d < kDims; ++d) {
    const int i = min(32 * d + lane, c.key_dim - 1);
    q_taps[d] = load_taps(c, span, row.p, q_first + i);
    k_taps[d] = load_taps(c, span, row.p, k_first + i);
  }
  float q[kDims], k[kDims], q_squares = 0, k_squares = 0;
#pragma unroll
  for (int d = 0; d < kDims; ++d) {
    const int i = 32 * d + lane;
    q[d] = i < c.key_dim ? f32_of(convolved(q_taps[d])) : 0.0f;
    k[d] = i < c.key_dim ? f32_of(convolved(k_taps[d])) : 0.0f;
    q_squares = fmaf(q[d], q[d], q_squares);
    k_squares = fmaf(k[d], k[d], k_squares);
    if (!c.keeps || i >= c.key_dim) continue;
    keep_only_row(c, span, q_taps[d], q_first + i);
    keep_only_row(c, span, k_taps[d], k_first + i);
  }
  const float q_scale = inverse_sqrt_f32(warp_sum(q_squares) + 1e-6f) * c.query_scale;
  const float k_scale = inverse_sqrt_f32(warp_sum(k_squares) + 1e-6f);
  const int64_t to = ((span.first_packed + row.p) * int64_t(c.key_heads) + head) * c.key_dim;
  float kq = 0;
#pragma unroll
  for (int d = 0; d < kDims; ++d) {
    const int i = 32 * d + lane;
    if (i >= c.key_dim) continue;
    const uint16_t q_out = bf16_of(q[d] * q_scale), k_out = bf16_of(k[d] * k_scale);
    c.q[to + i] = q_out;
    c.k[to + i] = k_out;
    kq = fmaf(f32_of(k_out), f32_of(q_out), kq);
  }
  kq = warp_sum(kq);
  if (lane == 0) c.kq[to / c.key_dim] = kq;
}

template <int kRun>
__device__ __forceinline__ void convolve_values(const ConvCall& c, int64_t block) {
  const int64_t width = int64_t(c.value_heads) * c.value_dim;
  const int64_t first = int64_t(2) * c.key_heads * c.key_dim;
  const int64_t item = block * kThreads + threadIdx.x, i = item % width;
  const int64_t first_row = item / width * kRun;
  if (first_row >= c.n_rows) return;
  if constexpr (kRun == 1) {
    const PackedRow row = c.rows[first_row];
    const DeltaSpan span = c.spans[row.span];
    const Taps taps = load_taps(c, span, row.p, first + i);
    c.v[(span.first_packed + row.p) * width + i] = convolved(taps);
    if (c.keeps) keep_only_row(c, span, taps, first + i);
  } else {
    RowRun<kRun> run(c, first_row);
    run.for_each(c, first + i,
                 [&](int64_t packed, uint16_t value) { c.v[packed * width + i] = value; });
  }
}

__device__ __forceinline__ void make_gates(const ConvCall& c, int64_t block) {
  const int64_t item = block * kThreads + threadIdx.x;
  if (item >= c.n_rows * c.value_heads) return;
  const PackedRow row = c.rows[item / c.value_heads];
  const DeltaSpan span = c.spans[row.span];
  const int64_t j = item % c.value_heads;
  const int64_t to = (span.first_packed + row.p) * int64_t(c.value_heads) + j;
  const float b = packed_at<float>(span, row.p, j, c.value_heads, c.b, c.store_b, c.n_kept_max);
  const float a = packed_at<float>(span, row.p, j, c.value_heads, c.a, c.store_a, c.n_kept_max);
  c.beta[to] = sigmoid_f32(b);
  c.decay[to] = exp_f32(-(exp_f32(c.a_log[j]) * softplus_f32(a + c.dt_bias[j])));
}

// Keys, then values, then gates, as blocks of one kernel: they do not wait for each other.
template <int kDims, int kRun>
__global__ void __launch_bounds__(kThreads)
    sm80_bf16_conv_gates(ConvCall c, int64_t n_key_blocks, int64_t n_value_blocks,
                         int64_t n_gate_blocks) {
  wait_for_inputs();
  const int64_t n_blocks = n_key_blocks + n_value_blocks + n_gate_blocks;
  for (int64_t block = blockIdx.x; block < n_blocks; block += gridDim.x) {
    if (block < n_key_blocks) {
      convolve_keys<kDims>(c, block);
    } else if (block < n_key_blocks + n_value_blocks) {
      convolve_values<kRun>(c, block - n_key_blocks);
    } else {
      make_gates(c, block - n_key_blocks - n_value_blocks);
    }
  }
}

// A list of one column that stays: moved down in place, so the thread of a column goes upwards.
template <class T>
__device__ __forceinline__ void keep_column(const DeltaSpan& span, int64_t i, int64_t width,
                                            const T* rows, T* store, int64_t n_kept_max) {
  const int64_t n_kept = span.n_replay + span.n_new - span.store_after;
  for (int64_t j = 0; j < n_kept; ++j)
    store[(span.slot * n_kept_max + j) * width + i] =
        packed_at<T>(span, span.store_after + j, i, width, rows, store, n_kept_max);
}

// A thread takes one channel of a span, or one value head's b and a. What it reads and writes is
// its own column, so the order inside the thread is all the order needed.
__global__ void sm80_keep_rows(ConvCall c) {
  wait_for_inputs();
  const int64_t n_columns = c.n_channels + c.value_heads, n_items = c.n_spans * n_columns;
  for (int64_t item = blockIdx.x * int64_t(kThreads) + threadIdx.x; item < n_items;
       item += int64_t(gridDim.x) * kThreads) {
    const DeltaSpan span = c.spans[item / n_columns];
    const int64_t i = item % n_columns;
    if (i >= c.n_channels) {
      const int64_t j = i - c.n_channels;
      keep_column(span, j, c.value_heads, c.b, c.store_b, c.n_kept_max);
      keep_column(span, j, c.value_heads, c.a, c.store_a, c.n_kept_max);
      continue;
    }
    uint16_t tail[3];
    for (int r = 0; r < 3; ++r) tail[r] = raw_at(c, span, span.store_after - 3 + r, i);
    keep_column(span, i, c.n_channels, c.qkv, c.store_qkv, c.n_kept_max);
    for (int r = 0; r < 3; ++r) c.tail[(span.slot * int64_t(3) + r) * c.n_channels + i] = tail[r];
  }
}

ConvCall call_of(const ConvGates& op) {
  ConvCall c{.qkv = bf16_data(op.qkv), .b = f32_data(op.b), .a = f32_data(op.a)};
  c.conv_weight = f32_data(op.conv_weight);
  c.a_log = f32_data(op.a_log);
  c.dt_bias = f32_data(op.dt_bias);
  c.tail = bf16_data(op.tail);
  c.store_qkv = bf16_data(op.store_qkv);
  c.store_b = f32_data(op.store_b);
  c.store_a = f32_data(op.store_a);
  c.q = bf16_data(op.q);
  c.k = bf16_data(op.k);
  c.v = bf16_data(op.v);
  c.kq = f32_data(op.kq);
  c.beta = f32_data(op.beta);
  c.decay = f32_data(op.decay);
  c.n_channels = op.qkv.dim(1);
  c.n_kept_max = op.store_qkv.exists() ? op.store_qkv.dim(1) : 0;
  c.key_heads = static_cast<int>(op.q.dim(1));
  c.key_dim = static_cast<int>(op.q.dim(2));
  c.value_heads = static_cast<int>(op.v.dim(1));
  c.value_dim = static_cast<int>(op.v.dim(2));
  c.query_scale = 1 / std::sqrt(static_cast<float>(c.key_dim));
  return c;
}

template <int kRun>
void launch_rows(const ConvCall& call, CudaContext& context) {
  const auto blocks = [](int64_t n_items, int64_t of_block) {
    return (n_items + of_block - 1) / of_block;
  };
  const int64_t n_runs = blocks(call.n_rows, kRun);
  const int64_t n_key_blocks = blocks(call.n_rows * call.key_heads, kWarps);
  const int64_t n_value_blocks = blocks(n_runs * call.value_heads * call.value_dim, kThreads);
  const int64_t n_gate_blocks = blocks(call.n_rows * call.value_heads, kThreads);
  ROOST_CHECK(call.key_dim <= 256);
  const auto kernel =
      call.key_dim <= 128 ? sm80_bf16_conv_gates<4, kRun> : sm80_bf16_conv_gates<8, kRun>;
  launch_kernel(context, kernel, grid_of(context, n_key_blocks + n_value_blocks + n_gate_blocks),
                kThreads, 0, call, n_key_blocks, n_value_blocks, n_gate_blocks);
}

}  // namespace

void conv_gates_cuda(const ConvGates& op, CudaContext& context) {
  if (op.spans.empty()) return;
  std::vector<PackedRow> rows;
  for (size_t s = 0; s < op.spans.size(); ++s) {
    for (int32_t p = 0; p < op.spans[s].n_packed(); ++p)
      rows.push_back({static_cast<int32_t>(s), p});
  }
  ConvCall call = call_of(op);
  call.spans = context.push(op.spans);
  call.rows = context.push(std::span<const PackedRow>(rows));
  call.n_spans = static_cast<int64_t>(op.spans.size());
  call.n_rows = static_cast<int64_t>(rows.size());
  call.keeps = call.n_rows < kRunRows && std::all_of(
                                             op.spans.begin(), op.spans.end(),
                                             [](const DeltaSpan& span) {
                                               return span.n_replay == 0 && span.n_new == 1 &&
                                                      span.store_after == 1;
                                             });
  if (call.n_rows > 0) {
    // With many rows a thread takes several, which share most of what they read.
    if (call.n_rows < kRunRows) {
      launch_rows<1>(call, context);
    } else {
      launch_rows<8>(call, context);
    }
  }
  if (call.keeps) return;
  const int64_t n_columns = call.n_channels + call.value_heads;
  launch_kernel(context, sm80_keep_rows,
                grid_for_threads(context, call.n_spans * n_columns, kThreads), kThreads, 0, call);
}

}  // namespace roost
