// The CUDA kernel of quant_linear, plain: any width, group and row count, one launch a part.
#include "ops/quant_linear/bricks_many.cuh"
#include "ops/quant_linear/bricks_rows.cuh"
#include "ops/quant_linear/product.cuh"

namespace roost {
namespace {

using namespace cuda;

struct LinearCall {
  const uint16_t* x;
  uint16_t* y_bf16;  // one of these two
  float* y_f32;
  int64_t n_rows;
  bool in_quarters, is_pair;
};

// A block takes 64 outputs of kTokens rows at a time; rows of one weight tile lie next to each
// other in the order of items, so the tile stays in L2.
template <int kTokens>
__global__ void __launch_bounds__(kProductThreads)
    sm80_qx_bf16_linear(WeightView w, WeightView up, LinearCall call) {
  wait_for_inputs();
  __shared__ ProductTile<kTokens> tile;
  const int64_t n_row_tiles = (call.n_rows + kTokens - 1) / kTokens;
  const int64_t n_items = (w.n_out + kProductOutputs - 1) / kProductOutputs * n_row_tiles;
  for (int64_t item = blockIdx.x; item < n_items; item += gridDim.x) {
    const int64_t first_row = item / n_row_tiles * kProductOutputs;
    const int64_t first_token = item % n_row_tiles * kTokens;
    __syncthreads();  // the item before has read its rows
    if (threadIdx.x < kTokens) {
      const int64_t t = first_token + threadIdx.x;
      tile.rows[threadIdx.x] = t < call.n_rows ? call.x + t * w.n_in : nullptr;
    }
    typename ProductTile<kTokens>::Sums sums;
    multiply<kTokens>(w, first_row, call.in_quarters, tile, sums);
    if (call.is_pair) {
      typename ProductTile<kTokens>::Sums other;
      multiply<kTokens>(up, first_row, call.in_quarters, tile, other);
      swiglu(sums, other);
    }
    for_sums<kTokens>(sums, [&](int token, int output, float value) {
      const int64_t t = first_token + token, r = first_row + output;
      if (t >= call.n_rows || r >= w.n_out) return;
      if (call.y_f32 != nullptr) call.y_f32[t * w.n_out + r] = value;
      if (call.y_bf16 != nullptr) call.y_bf16[t * w.n_out + r] = bf16_of(value);
    });
  }
}

template <int kTokens>
void launch(const WeightView& w, const WeightView& up, const LinearCall& call,
            CudaContext& context) {
  const int64_t n_items =
      (w.n_out + kProductOutputs - 1) / kProductOutputs * ((call.n_rows + kTokens - 1) / kTokens);
  launch_kernel(context, sm80_qx_bf16_linear<kTokens>, grid_of(context, n_items), kProductThreads,
                0, w, up, call);
}

}  // namespace

void quant_linear_cuda(const QuantLinear& op, CudaContext& context) {
  if (takes_bricks_rows(op)) return bricks_rows_cuda(op, context);
  const bool is_pair = op.epilogue == Epilogue::kSwiGlu;
  for (int p = 0; p < (is_pair ? 1 : op.n_parts); ++p) {
    const LinearPart& part = op.parts[static_cast<size_t>(p)];
    const BrickProduct product{
        .x = op.x,
        .w = part.w,
        .up = is_pair ? op.parts[1].w : nullptr,
        .y = part.y,
        .y_stride = part.w->n_out,
        .in_quarters = part.tree == ProductTree::kQuarters && has_quarters(*part.w)};
    if (takes_bricks_many(product) && !(is_pair && product.in_quarters)) {
      bricks_many_cuda(product, context);
      continue;
    }
    const WeightView w = view_of(*part.w), up = is_pair ? view_of(*op.parts[1].w) : WeightView{};
    LinearCall call{.x = bf16_data(op.x), .n_rows = op.x.dim(0), .is_pair = is_pair};
    call.in_quarters = product.in_quarters;
    if (part.y.dtype == DType::kF32) {
      call.y_f32 = f32_data(part.y);
    } else {
      call.y_bf16 = bf16_data(part.y);
    }
    // The tree is the same: which tile is taken shows in no bit.
    if (call.n_rows <= 8) {
      launch<8>(w, up, call, context);
    } else if (call.n_rows <= 32) {
      launch<32>(w, up, call, context);
    } else {
      launch<64>(w, up, call, context);
    }
  }
}

}  // namespace roost
