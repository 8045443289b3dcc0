// The CUDA kernel of embed: a thread decodes eight neighbouring elements of a row.
#include "ops/launch.cuh"

namespace roost {
namespace {

using namespace cuda;

constexpr int kThreads = 128;

__global__ void sm80_embed(const int32_t* tokens, WeightView table, uint16_t* out, int64_t n_rows) {
  wait_for_inputs();
  const int64_t n_runs = (table.n_in + 7) / 8, n_items = n_rows * n_runs;
  const int64_t step = int64_t(gridDim.x) * kThreads;
  for (int64_t item = blockIdx.x * int64_t(kThreads) + threadIdx.x; item < n_items; item += step) {
    const int64_t t = item / n_runs, col = item % n_runs * 8;
    float weights[8];
    eight_weights(table, tokens[t], col, weights);
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      if (col + i < table.n_in) out[t * table.n_in + col + i] = bf16_of(weights[i]);
    }
  }
}

}  // namespace

void embed_cuda(const Embed& op, CudaContext& context) {
  const int64_t n_rows = op.tokens.dim(0), n_items = n_rows * ((op.table->n_in + 7) / 8);
  launch_kernel(context, sm80_embed, grid_for_threads(context, n_items, kThreads), kThreads, 0,
                i32_data(op.tokens), view_of(*op.table), bf16_data(op.out), n_rows);
}

}  // namespace roost
