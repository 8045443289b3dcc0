// The CUDA kernel of quant_linear for few rows of activations over bricks: each block one tile of
// weight rows, all parts of a call in one launch where they are alike.
#include "ops/quant_linear/bricks_rows.cuh"

#include "ops/quant_linear/bricks.cuh"

namespace roost {
namespace {

using namespace cuda;

constexpr int kPackThreads = 128;

__global__ void __launch_bounds__(kPackThreads) sm80_pack_rows(PackCall call) {
  wait_for_inputs();
  pack_rows(call, blockIdx.x * int64_t(kPackThreads) + threadIdx.x,
            int64_t(gridDim.x) * kPackThreads);
}

struct RowsPart {
  const uint8_t *bricks, *up;
  uint16_t* y_bf16;  // one of these two
  float* y_f32;
  int64_t n_out, first_tile;
};

struct RowsCall {
  RowsPart parts[QuantLinear::kPartsMax];
  const uint4* packed;
  int64_t n_rows, n_tiles;
  int n_parts, n_across;
};

template <int kBits, int kColumns, BrickMode kMode>
__global__ void __launch_bounds__(kBrickThreads) sm80_bricks_linear_rows(RowsCall call) {
  for (int64_t item = blockIdx.x; item < call.n_tiles; item += gridDim.x) {
    int p = 0;
    while (p + 1 < call.n_parts && item >= call.parts[p + 1].first_tile) ++p;
    const RowsPart& part = call.parts[p];
    __syncthreads();  // shared sums of the item before have been read
    run_brick_tile<kBits, kColumns, kMode>(
        part.bricks, part.up, call.n_across, int(item - part.first_tile), call.packed,
        [&](int token, int64_t row, float value) {
          if (token >= call.n_rows || row >= part.n_out) return;
          if (part.y_f32 != nullptr) part.y_f32[token * part.n_out + row] = value;
          if (part.y_bf16 != nullptr) part.y_bf16[token * part.n_out + row] = bf16_of(value);
        });
  }
}

template <int kBits, int kColumns>
void launch(const RowsCall& call, BrickMode mode, CudaContext& context) {
  const auto kernel = mode == BrickMode::kChain
                          ? sm80_bricks_linear_rows<kBits, kColumns, BrickMode::kChain>
                      : mode == BrickMode::kQuarters
                          ? sm80_bricks_linear_rows<kBits, kColumns, BrickMode::kQuarters>
                          : sm80_bricks_linear_rows<kBits, kColumns, BrickMode::kPair>;
  launch_kernel(context, kernel, grid_of(context, call.n_tiles), kBrickThreads, 0, call);
}

void launch(const RowsCall& call, int bits, int n_columns, BrickMode mode, CudaContext& context) {
  if (bits == 4) {
    if (n_columns == 1) return launch<4, 1>(call, mode, context);
    if (n_columns == 2) return launch<4, 2>(call, mode, context);
    return launch<4, 4>(call, mode, context);
  }
  if (n_columns == 1) return launch<8, 1>(call, mode, context);
  if (n_columns == 2) return launch<8, 2>(call, mode, context);
  return launch<8, 4>(call, mode, context);
}

BrickMode mode_of(const QuantLinear& op, const LinearPart& part) {
  if (op.epilogue == Epilogue::kSwiGlu) return BrickMode::kPair;
  const bool has_quarters = part.w->n_in % (4 * kBrickInputs) == 0;
  return part.tree == ProductTree::kQuarters && has_quarters ? BrickMode::kQuarters
                                                             : BrickMode::kChain;
}

}  // namespace

size_t quant_linear_cuda_scratch_bytes(int64_t n_in_max) {
  const int64_t padded = (n_in_max + kBrickInputs - 1) / kBrickInputs * kBrickInputs;
  return packed_bytes(brick_columns_of(kBrickTokensMax), padded) + DeviceArena::kAlign;
}

bool takes_bricks_rows(const QuantLinear& op) {
  if (op.x.dim(0) > kBrickTokensMax) return false;
  for (int p = 0; p < op.n_parts; ++p) {
    const LinearPart& part = op.parts[static_cast<size_t>(p)];
    if (!is_bricks(*part.w)) return false;
    const bool is_pair = op.epilogue == Epilogue::kSwiGlu;
    if (is_pair && (part.tree != ProductTree::kChain || part.w->bits != op.parts[0].w->bits))
      return false;
  }
  return true;
}

void bricks_rows_cuda(const QuantLinear& op, CudaContext& context) {
  const DeviceArena::Scope scope(context.scratch);
  const bool is_pair = op.epilogue == Epilogue::kSwiGlu;
  const int n_parts = is_pair ? 1 : op.n_parts;
  const int64_t n_rows = op.x.dim(0), n_in = op.x.dim(1);
  const int n_columns = brick_columns_of(n_rows);
  const PackCall pack = take_packed(bf16_data(op.x), n_rows, n_in, n_columns, context);
  launch_kernel(context, sm80_pack_rows,
                grid_for_threads(context, n_packed_runs(pack), kPackThreads), kPackThreads, 0,
                pack);
  RowsCall call{.packed = pack.packed};
  call.n_rows = n_rows;
  call.n_across = static_cast<int>(n_in / kBrickInputs);
  for (int p = 0; p < n_parts; ++p) {
    const LinearPart& part = op.parts[static_cast<size_t>(p)];
    const BrickMode mode = mode_of(op, part);
    RowsPart& to = call.parts[call.n_parts++];
    to = {.bricks = bricks_of(*part.w), .n_out = part.w->n_out, .first_tile = call.n_tiles};
    if (is_pair) to.up = bricks_of(*op.parts[1].w);
    if (part.y.dtype == DType::kF32) {
      to.y_f32 = f32_data(part.y);
    } else {
      to.y_bf16 = bf16_data(part.y);
    }
    call.n_tiles += (part.w->n_out + tile_rows_of(mode) - 1) / tile_rows_of(mode);
    const LinearPart* next = p + 1 < n_parts ? &op.parts[static_cast<size_t>(p) + 1] : nullptr;
    if (next != nullptr && mode_of(op, *next) == mode && next->w->bits == part.w->bits) continue;
    launch(call, part.w->bits, n_columns, mode, context);
    call.n_parts = 0;
    call.n_tiles = 0;
  }
}

}  // namespace roost
