// The CUDA kernel of quant_linear for many rows of activations over bricks, on the warpgroup matrix
// unit.
#include "ops/quant_linear/bricks_many.cuh"

#include "ops/quant_linear/bricks_tile.cuh"

namespace roost {
namespace cuda {

bool has_warpgroup_products() {
  static const bool has = [] {
    int device = 0, major = 0;
    check(cudaGetDevice(&device));
    check(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device));
    return major == 9;
  }();
  return has;
}

int n_multiprocessors() {
  static const int n = [] {
    int device = 0, count = 1;
    check(cudaGetDevice(&device));
    check(cudaDeviceGetAttribute(&count, cudaDevAttrMultiProcessorCount, device));
    return count;
  }();
  return n;
}

}  // namespace cuda

namespace {

using namespace cuda;

struct ManyCall {
  const uint8_t *bricks, *up;
  const uint16_t* x;
  uint16_t* y_bf16;  // one of these two
  float* y_f32;
  int64_t n_out, n_rows, y_stride, n_token_tiles, first_item;
  int n_across;
};

// Token tiles of one row tile follow each other, so that its bricks stay in L2.
template <int kBits, int kTokens, bool kQuarters, bool kPair>
__global__ void __launch_bounds__(kTileThreads, kQuarters ? 1 : 2)
    sm90_bricks_linear_tile(ManyCall call) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  extern __shared__ uint8_t dynamic_shared[];
  using Tile = BrickTile<kBits, kTokens, kQuarters>;
  Tile tile(dynamic_shared);
  wait_for_inputs();
  const int group = threadIdx.x / 128;
  const int64_t item = call.first_item + blockIdx.x, row_tile = item / call.n_token_tiles;
  const int64_t first_token = item % call.n_token_tiles * kTokens;
  const int64_t n_row_tiles = (call.n_out + 63) / 64;
  const int64_t mine = kPair ? row_tile : row_tile * 2 + group;
  // A warpgroup without rows works along, for the barriers, and stores nothing.
  const uint8_t* bricks = (kPair && group == 1 ? call.up : call.bricks) +
                          min(mine, n_row_tiles - 1) * call.n_across * brick_bytes_of(kBits);
  const int n_tokens = int(min(int64_t(kTokens), call.n_rows - first_token));
  const int64_t n_in = int64_t(call.n_across) * 64;
  typename Tile::Sums sums;
  tile.run(
      bricks, call.n_across, n_tokens,
      [&](int token) { return call.x + (first_token + token) * n_in; }, sums);
  if constexpr (kPair) {
    tile.join_pair(sums);
    if (group == 1) return;
  }
  tile.for_sums(sums, [&](int token, int row, float value) {
    const int64_t r = mine * 64 + row, at = (first_token + token) * call.y_stride + r;
    if (token >= n_tokens || r >= call.n_out) return;
    if (call.y_f32 != nullptr) call.y_f32[at] = value;
    if (call.y_bf16 != nullptr) call.y_bf16[at] = bf16_of(value);
  });
#endif
}

template <int kBits, int kTokens, bool kQuarters, bool kPair>
void launch(ManyCall call, CudaContext& context) {
  const auto kernel = sm90_bricks_linear_tile<kBits, kTokens, kQuarters, kPair>;
  constexpr size_t kBytes = tile_shared_bytes<kBits, kTokens>();
  check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                             static_cast<int>(kBytes)));
  call.n_token_tiles = (call.n_rows + kTokens - 1) / kTokens;
  const int64_t rows_of_block = kPair ? 64 : 128;
  const int64_t n_items = (call.n_out + rows_of_block - 1) / rows_of_block * call.n_token_tiles;
  while (call.first_item < n_items) {
    const unsigned n_blocks = grid_of(context, n_items - call.first_item);
    launch_kernel(context, kernel, n_blocks, kTileThreads, kBytes, call);
    call.first_item += n_blocks;
  }
}

}  // namespace

bool takes_bricks_many(const BrickProduct& p) {
  if (!has_warpgroup_products() || !is_bricks(*p.w)) return false;
  if (p.w->n_in % (p.in_quarters ? 8 * kBrickInputs : 2 * kBrickInputs) != 0) return false;
  if (p.up != nullptr) return is_bricks(*p.up) && p.w->bits == 4 && p.up->bits == 4;
  return p.w->bits == 4 || p.in_quarters;
}

void bricks_many_cuda(const BrickProduct& p, CudaContext& context) {
  ManyCall call{.bricks = bricks_of(*p.w), .x = bf16_data(p.x)};
  if (p.up != nullptr) call.up = bricks_of(*p.up);
  if (p.y.dtype == DType::kF32) {
    call.y_f32 = f32_data(p.y);
  } else {
    call.y_bf16 = bf16_data(p.y);
  }
  call.n_out = p.w->n_out;
  call.n_rows = p.x.dim(0);
  call.y_stride = p.y_stride;
  call.n_across = static_cast<int>(p.w->n_in / kBrickInputs);
  const bool is_wide = call.n_rows > 64;
  if (p.up != nullptr) {
    return is_wide ? launch<4, 128, false, true>(call, context)
                   : launch<4, 64, false, true>(call, context);
  }
  if (p.in_quarters) {
    return p.w->bits == 8 ? launch<8, 64, true, false>(call, context)
                          : launch<4, 64, true, false>(call, context);
  }
  return is_wide ? launch<4, 128, false, false>(call, context)
                 : launch<4, 64, false, false>(call, context);
}

}  // namespace roost
