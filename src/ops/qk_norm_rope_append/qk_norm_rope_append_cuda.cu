// The CUDA kernel of qk_norm_rope_append: a warp a row and head, of the query or of the key.
#include <vector>

#include "ops/launch.cuh"

namespace roost {
namespace {

using namespace cuda;

constexpr int kThreads = 128;
constexpr int kWarps = kThreads / 32;

// Row t of the step, and where its K and V go.
struct RowPlace {
  int32_t row, page, slot;
};

struct RopeCall {
  const uint16_t *q_gate, *k, *v;  // no queries: q_gate, q_weight and q are null, n_heads 0
  const float *q_weight, *k_weight, *rope;
  uint16_t *q, *k_pages, *v_pages;
  const RowPlace* places;
  int64_t n_rows;
  int n_heads, kv_heads, dim, n_pairs;
  float eps;
};

// One head from `from` to `to`, normalized and turned.
__device__ __forceinline__ void turn_head(const uint16_t* from, const float* weight,
                                          const float* rope, const RopeCall& c, uint16_t* to) {
  const int lane = threadIdx.x % 32;
  float squares = 0;
  for (int i = lane; i < c.dim; i += 32) squares = fmaf(f32_of(from[i]), f32_of(from[i]), squares);
  const float scale = inverse_sqrt_f32(warp_sum(squares) / float(c.dim) + c.eps);
  const auto normed = [&](int i) { return f32_of(from[i]) * scale * weight[i]; };
  for (int i = lane; i < c.n_pairs; i += 32) {
    const float cosine = rope[2 * i], sine = rope[2 * i + 1];
    const float a = normed(i), b = normed(i + c.n_pairs);
    to[i] = bf16_of(fmaf(-b, sine, a * cosine));
    to[i + c.n_pairs] = bf16_of(fmaf(a, sine, b * cosine));
  }
  for (int i = 2 * c.n_pairs + lane; i < c.dim; i += 32) to[i] = bf16_of(normed(i));
}

__global__ void sm80_bf16_qk_norm_rope_append(RopeCall c) {
  wait_for_inputs();
  const int n_units = c.n_heads + c.kv_heads;
  for (int64_t item = blockIdx.x * int64_t(kWarps) + threadIdx.x / 32; item < c.n_rows * n_units;
       item += int64_t(gridDim.x) * kWarps) {
    const RowPlace place = c.places[item / n_units];
    const int unit = int(item % n_units);
    const float* rope = c.rope + int64_t(place.row) * c.n_pairs * 2;
    if (unit < c.n_heads) {
      const int64_t head = int64_t(place.row) * c.n_heads + unit;
      turn_head(c.q_gate + head * 2 * c.dim, c.q_weight, rope, c, c.q + head * c.dim);
      continue;
    }
    const int g = unit - c.n_heads;
    const int64_t from = (int64_t(place.row) * c.kv_heads + g) * c.dim;
    const int64_t to = ((int64_t(place.page) * c.kv_heads + g) * kPageTokens + place.slot) * c.dim;
    turn_head(c.k + from, c.k_weight, rope, c, c.k_pages + to);
    for (int i = threadIdx.x % 32; i < c.dim; i += 32) c.v_pages[to + i] = c.v[from + i];
  }
}

}  // namespace

void qk_norm_rope_append_cuda(const QkNormRopeAppend& op, CudaContext& context) {
  if (op.spans.empty()) return;
  std::vector<RowPlace> places;
  for (const RowSpan& span : op.spans) {
    for (int32_t r = 0; r < span.n_rows; ++r) {
      const int32_t token = span.first_index + r;
      places.push_back(
          {span.first_row + r, span.page_table[token / kPageTokens], token % kPageTokens});
    }
  }
  RopeCall call{.k = bf16_data(op.k), .v = bf16_data(op.v)};
  if (op.q.exists()) {
    call.q_gate = bf16_data(op.q_gate);
    call.q_weight = f32_data(op.q_weight);
    call.q = bf16_data(op.q);
  }
  call.k_weight = f32_data(op.k_weight);
  call.rope = f32_data(op.rope);
  call.k_pages = bf16_data(op.k_pages);
  call.v_pages = bf16_data(op.v_pages);
  call.places = context.push(std::span<const RowPlace>(places));
  call.n_rows = static_cast<int64_t>(places.size());
  call.n_heads = static_cast<int>(op.n_heads());
  call.kv_heads = static_cast<int>(op.k_pages.dim(1));
  call.dim = static_cast<int>(op.k_pages.dim(3));
  call.n_pairs = static_cast<int>(op.rope.dim(1));
  call.eps = op.eps;
  const int64_t n_items = call.n_rows * (call.n_heads + call.kv_heads);
  launch_kernel(context, sm80_bf16_qk_norm_rope_append,
                grid_of(context, (n_items + kWarps - 1) / kWarps), kThreads, 0, call);
}

}  // namespace roost
