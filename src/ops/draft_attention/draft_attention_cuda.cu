// The CUDA kernel of draft_attention, plain: a block takes one row and up to kHeads query heads of
// one KV head, and passes over the keys a tile of 64 at a time. All arithmetic is in f32.
#include <vector>

#include "ops/launch.cuh"

namespace roost {
namespace {

using namespace cuda;

constexpr int kThreads = 128;
constexpr int kWarps = kThreads / 32;
constexpr int kHeads = 8;
constexpr int kTile = kPageTokens;

// Row `row` of the call is number `index` of its block.
struct DraftRow {
  int32_t row, index, n_rows, position, context_begin, first_page;
};

struct DraftCall {
  const uint16_t *q, *k, *v, *k_pages, *v_pages;
  const float *q_weight, *k_weight, *rope;
  uint16_t* out;
  const DraftRow* rows;
  const int32_t* pages;
  int64_t n_rows, window;
  int kv_heads, group, n_chunks, dim;
  float score_scale;  // scale · log2(e)
  float eps;
  bool is_causal;
};

// Dynamic shared memory. A tile's keys and values lie dim + 1 numbers apart: threads that read one
// dim of neighbouring keys meet no bank twice.
struct Shared {
  float *queries, *sums;           // [kHeads][dim]
  float *keys, *values;            // [kTile][dim + 1]
  float* weights;                  // [kHeads][kTile]: scores, then what they weigh
  float *maxima, *totals, *scale;  // [kHeads]; scale: what the sums so far are multiplied by

  __device__ Shared(float* memory, int dim) {
    queries = memory;
    sums = queries + kHeads * dim;
    keys = sums + kHeads * dim;
    values = keys + kTile * (dim + 1);
    weights = values + kTile * (dim + 1);
    maxima = weights + kHeads * kTile;
    totals = maxima + kHeads;
    scale = totals + kHeads;
  }
};

size_t shared_bytes(int64_t dim) {
  return static_cast<size_t>(2 * kHeads * dim + 2 * kTile * (dim + 1) + kHeads * (kTile + 3)) * 4;
}

// out = the head u, normalized and turned, by one warp.
__device__ __forceinline__ void turn_head(const uint16_t* u, const float* weight, const float* rope,
                                          const DraftCall& c, float* out) {
  const int lane = threadIdx.x % 32, half = c.dim / 2;
  float squares = 0;
  for (int i = lane; i < c.dim; i += 32) squares = fmaf(f32_of(u[i]), f32_of(u[i]), squares);
  const float scale = inverse_sqrt_f32(warp_sum(squares) / float(c.dim) + c.eps);
  for (int i = lane; i < half; i += 32) {
    const float cosine = rope[2 * i], sine = rope[2 * i + 1];
    const float a = f32_of(u[i]) * scale * weight[i];
    const float b = f32_of(u[i + half]) * scale * weight[i + half];
    out[i] = fmaf(-b, sine, a * cosine);
    out[i + half] = fmaf(a, sine, b * cosine);
  }
}

// Keys [begin, end) of one page to the tile's first rows.
__device__ __forceinline__ void load_page(const DraftCall& c, int64_t page, int kv_head, int begin,
                                          int end, const Shared& s) {
  const int64_t from =
      ((page * c.kv_heads + kv_head) * kPageTokens + begin % kPageTokens) * int64_t(c.dim);
  for (int i = threadIdx.x; i < (end - begin) * c.dim; i += kThreads) {
    const int to = i / c.dim * (c.dim + 1) + i % c.dim;
    s.keys[to] = f32_of(c.k_pages[from + i]);
    s.values[to] = f32_of(c.v_pages[from + i]);
  }
}

// The first n_keys rows of the draft block itself.
__device__ __forceinline__ void load_block(const DraftCall& c, const DraftRow& place, int kv_head,
                                           int n_keys, const Shared& s) {
  const int64_t first_row = place.row - place.index, width = int64_t(c.kv_heads) * c.dim;
  for (int r = threadIdx.x / 32; r < n_keys; r += kWarps) {
    const int64_t t = first_row + r, from = t * width + int64_t(kv_head) * c.dim;
    turn_head(c.k + from, c.k_weight, c.rope + t * c.dim, c, s.keys + r * (c.dim + 1));
    for (int i = threadIdx.x % 32; i < c.dim; i += 32)
      s.values[r * (c.dim + 1) + i] = f32_of(c.v[from + i]);
  }
}

// Adds the tile's first n_keys keys to the sums of n_heads queries.
__device__ __forceinline__ void add_keys(const DraftCall& c, int n_heads, int n_keys,
                                         const Shared& s) {
  __syncthreads();  // the tile is there
  for (int i = threadIdx.x; i < n_heads * kTile; i += kThreads) {
    const int key = i % kTile;
    if (key >= n_keys) continue;
    const float *q = s.queries + i / kTile * c.dim, *k = s.keys + key * (c.dim + 1);
    float dot = 0;
    for (int d = 0; d < c.dim; ++d) dot = fmaf(q[d], k[d], dot);
    s.weights[i] = dot * c.score_scale;
  }
  __syncthreads();
  const int lane = threadIdx.x % 32;
  for (int head = threadIdx.x / 32; head < n_heads; head += kWarps) {
    float* weights = s.weights + head * kTile;
    float maximum = s.maxima[head], total = 0;
    const float before = maximum;
    for (int key = lane; key < n_keys; key += 32) maximum = fmaxf(maximum, weights[key]);
    for (int step = 16; step > 0; step /= 2)
      maximum = fmaxf(maximum, __shfl_xor_sync(~0u, maximum, step));
    for (int key = lane; key < n_keys; key += 32) {
      weights[key] = exp2_f32(weights[key] - maximum);
      total += weights[key];
    }
    total = warp_sum(total);
    __syncwarp();  // all lanes have read the maximum before
    if (lane > 0) continue;
    const float scale = exp2_f32(before - maximum);
    s.maxima[head] = maximum;
    s.scale[head] = scale;
    s.totals[head] = fmaf(s.totals[head], scale, total);
  }
  __syncthreads();
  for (int i = threadIdx.x; i < n_heads * c.dim; i += kThreads) {
    const int head = i / c.dim, d = i % c.dim;
    float sum = s.sums[i] * s.scale[head];
    for (int key = 0; key < n_keys; ++key)
      sum = fmaf(s.weights[head * kTile + key], s.values[key * (c.dim + 1) + d], sum);
    s.sums[i] = sum;
  }
  __syncthreads();  // the tile has been read
}

__global__ void __launch_bounds__(kThreads) sm80_f32_draft_attention(DraftCall c) {
  wait_for_inputs();
  extern __shared__ float dynamic_shared[];
  const Shared s(dynamic_shared, c.dim);
  const int64_t n_items = c.n_rows * c.kv_heads * c.n_chunks;
  for (int64_t item = blockIdx.x; item < n_items; item += gridDim.x) {
    const DraftRow place = c.rows[item / (c.kv_heads * c.n_chunks)];
    const int kv_head = int(item / c.n_chunks % c.kv_heads);
    const int first_head = int(item % c.n_chunks) * kHeads;
    const int n_heads = min(kHeads, c.group - first_head);
    const int64_t from =
        ((int64_t(place.row) * c.kv_heads + kv_head) * c.group + first_head) * c.dim;
    for (int head = threadIdx.x / 32; head < n_heads; head += kWarps)
      turn_head(c.q + from + int64_t(head) * c.dim, c.q_weight, c.rope + int64_t(place.row) * c.dim,
                c, s.queries + head * c.dim);
    for (int i = threadIdx.x; i < n_heads * c.dim; i += kThreads) s.sums[i] = 0;
    if (threadIdx.x < kHeads) {
      s.maxima[threadIdx.x] = -INFINITY;
      s.totals[threadIdx.x] = 0;
    }
    const int64_t lowest = c.window > 0 ? place.position + place.index - c.window + 1 : 0;
    int begin = int(max(lowest, int64_t(place.context_begin)));
    while (begin < place.position) {
      const int end = min((begin / kPageTokens + 1) * kPageTokens, place.position);
      load_page(c, c.pages[place.first_page + begin / kPageTokens], kv_head, begin, end, s);
      add_keys(c, n_heads, end - begin, s);
      begin = end;
    }
    const int n_keys = c.is_causal ? place.index + 1 : place.n_rows;
    load_block(c, place, kv_head, n_keys, s);
    add_keys(c, n_heads, n_keys, s);
    for (int i = threadIdx.x; i < n_heads * c.dim; i += kThreads)
      c.out[from + i] = bf16_of(s.sums[i] / s.totals[i / c.dim]);
    __syncthreads();  // sums have been read
  }
}

}  // namespace

void draft_attention_cuda(const DraftAttention& op, CudaContext& context) {
  if (op.spans.empty()) return;
  std::vector<DraftRow> rows;
  std::vector<int32_t> pages;
  for (const DraftSpan& span : op.spans) {
    // Pages in front of the context are not the sequence's any more.
    const int32_t n_pages =
        span.context_begin < span.position ? (span.position + kPageTokens - 1) / kPageTokens : 0;
    for (int32_t r = 0; r < span.n_rows; ++r)
      rows.push_back({.row = span.first_row + r,
                      .index = r,
                      .n_rows = span.n_rows,
                      .position = span.position,
                      .context_begin = span.context_begin,
                      .first_page = static_cast<int32_t>(pages.size())});
    pages.insert(pages.end(), span.page_table, span.page_table + n_pages);
  }
  DraftCall call{.q = bf16_data(op.q), .k = bf16_data(op.k), .v = bf16_data(op.v)};
  call.k_pages = bf16_data(op.k_pages);
  call.v_pages = bf16_data(op.v_pages);
  call.q_weight = f32_data(op.q_weight);
  call.k_weight = f32_data(op.k_weight);
  call.rope = f32_data(op.rope);
  call.out = bf16_data(op.out);
  call.rows = context.push(std::span<const DraftRow>(rows));
  call.pages = context.push(std::span<const int32_t>(pages));
  call.n_rows = static_cast<int64_t>(rows.size());
  call.window = op.window;
  call.kv_heads = static_cast<int>(op.kv_heads());
  call.group = static_cast<int>(op.heads_per_kv());
  call.n_chunks = (call.group + kHeads - 1) / kHeads;
  call.dim = static_cast<int>(op.dim());
  call.score_scale = op.scale * 1.44269504088896f;
  call.eps = op.eps;
  call.is_causal = op.is_causal;
  const size_t n_bytes = shared_bytes(call.dim);
  check(cudaFuncSetAttribute(sm80_f32_draft_attention, cudaFuncAttributeMaxDynamicSharedMemorySize,
                             static_cast<int>(n_bytes)));
  launch_kernel(context, sm80_f32_draft_attention,
                grid_of(context, call.n_rows * call.kv_heads * call.n_chunks), kThreads, n_bytes,
                call);
}

}  // namespace roost
