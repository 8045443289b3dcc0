// The CUDA kernels of quant_linear for few rows of activations over bricks (sm_90a): each block a
// tile of weight rows, all parts of a call in one launch where they are alike. A matrix in quarters
// is shared by a cluster of four blocks, a quarter each.
#include "ops/quant_linear/bricks_rows.cuh"

#include "device/cuda/cluster.cuh"
#include "ops/quant_linear/bricks.cuh"

namespace roost {
namespace {

using namespace cuda;

constexpr int64_t kRowsMax = 16;  // with more, weights are better kept in shared memory
constexpr size_t kCoresBytesMax = size_t{160} << 10;
constexpr size_t kSharedCoresBytes = size_t{64} << 10;  // from here on two tiles share them
constexpr int kQuarterBlocks = 4;

struct RowsPart {
  const uint8_t *bricks, *up;
  uint16_t* y_bf16;  // one of these two
  float* y_f32;
  int64_t n_out, first_tile;
};

struct RowsCall {
  RowsPart parts[QuantLinear::kPartsMax];
  const uint16_t* x;
  int64_t n_rows, n_tiles;
  int n_parts, n_across;
};

[[maybe_unused]] __device__ __forceinline__ const RowsPart& part_of(const RowsCall& call,
                                                                    int64_t tile) {
  int p = 0;
  while (p + 1 < call.n_parts && tile >= call.parts[p + 1].first_tile) ++p;
  return call.parts[p];
}

[[maybe_unused]] __device__ __forceinline__ void store(const RowsCall& call, const RowsPart& part,
                                                       int token, int64_t row, float value) {
  if (token >= call.n_rows || row >= part.n_out) return;
  if (part.y_f32 != nullptr) part.y_f32[token * part.n_out + row] = value;
  if (part.y_bf16 != nullptr) part.y_bf16[token * part.n_out + row] = bf16_of(value);
}

// The joined sums of quarters: this block's share of them, handed to store(place, value).
template <int kColumns, int kThreads, class Store>
__device__ __forceinline__ void join_cluster(const float (&sums)[kColumns * 4],
                                             const Store& store_joined) {
  __shared__ float parts[kColumns * 4][kThreads];
#pragma unroll
  for (int i = 0; i < kColumns * 4; ++i) parts[i][threadIdx.x] = sums[i];
  cluster_barrier();
  const int rank = rank_in_cluster();
#pragma unroll
  for (int k = 0; k < kColumns; ++k) {
    const int i = rank * kColumns + k;
    float p[kQuarterBlocks];
#pragma unroll
    for (int q = 0; q < kQuarterBlocks; ++q) p[q] = read_of_rank(&parts[i][threadIdx.x], q);
    store_joined(i, (p[0] + p[1]) + (p[2] + p[3]));
  }
  cluster_barrier();  // all have read
}

// kGroups · 4 warps, each group a tile.
template <int kBits, int kColumns, int kGroups, BrickMode kMode>
__global__ void __launch_bounds__(kGroups * 128) sm90_bricks_linear_rows(RowsCall call) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  constexpr int kThreads = kGroups * 128;
  using Chain = BrickChain<kBits, kThreads>;
  extern __shared__ uint4 dynamic_shared[];
  auto& ring = *reinterpret_cast<typename Chain::Ring*>(dynamic_shared);
  const ActivationCores cores{reinterpret_cast<uint8_t*>(&ring + 1), int(call.n_rows)};
  const int warp = threadIdx.x / 32 % 4, group = threadIdx.x / 128;
  constexpr int kBlocks = kMode == BrickMode::kQuarters ? kQuarterBlocks : 1;
  const int quarter = blockIdx.x % kBlocks, n = call.n_across / kBlocks;
  const int64_t n_items = (call.n_tiles + kGroups - 1) / kGroups;
  const int64_t bytes_across = call.n_across * brick_bytes_of(kBits);
  bool is_loaded = false;
  for (int64_t item = blockIdx.x / kBlocks; item < n_items; item += gridDim.x / kBlocks) {
    // A group behind the last tile takes it again and stores nothing.
    const int64_t wanted = item * kGroups + group, tile = min(wanted, call.n_tiles - 1);
    const RowsPart& part = part_of(call, tile);
    const int64_t at = tile - part.first_tile;
    float sums[kColumns * 4];
    const bool is_up = kMode == BrickMode::kPair && warp > 1;
    const uint8_t* bricks = (is_up ? part.up : part.bricks) +
                            (kMode == BrickMode::kPair ? at / 2 : at) * bytes_across +
                            quarter * n * brick_bytes_of(kBits);
    Chain chain(ring, bricks, n, kMode == BrickMode::kPair ? int(at % 2) * 2 + warp % 2 : warp);
    if (!is_loaded) {
      wait_for_inputs();
      load_cores(cores, n, [&](int token) {
        return call.x + (int64_t(token) * call.n_across + quarter * n) * kBrickInputs;
      });
      wait_for_cores();
      is_loaded = true;
    }
    chain.template run<kColumns>(cores, false, sums);
    if constexpr (kMode == BrickMode::kQuarters) {
      const int g = threadIdx.x % 32 / 4, q = threadIdx.x % 4;
      join_cluster<kColumns, kThreads>(sums, [&](int i, float value) {
        if (wanted < call.n_tiles)
          store(call, part, i / 4 * 8 + 2 * q + i % 2, at * 64 + 16 * warp + g + i % 4 / 2 * 8,
                value);
      });
    } else {
      if constexpr (kMode == BrickMode::kPair) {
        __syncthreads();  // the pair before has been read
        join_pair<kColumns, kThreads>(sums);
        if (warp > 1) continue;
      }
      const int64_t first_row = at * tile_rows_of(kMode) + 16 * warp;
      for_brick_sums<kColumns>(sums, first_row, [&](int token, int64_t row, float value) {
        if (wanted < call.n_tiles) store(call, part, token, row, value);
      });
    }
  }
#endif
}

template <int kBits, int kColumns, int kGroups, BrickMode kMode>
void launch(const RowsCall& call, CudaContext& context) {
  constexpr bool kQuarters = kMode == BrickMode::kQuarters;
  const auto kernel = sm90_bricks_linear_rows<kBits, kColumns, kGroups, kMode>;
  const int n = call.n_across / (kQuarters ? kQuarterBlocks : 1);
  const size_t n_bytes = sizeof(typename BrickChain<kBits, kGroups * 128>::Ring) +
                         cores_bytes(call.n_rows, int64_t(n) * kBrickInputs);
  check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                             static_cast<int>(n_bytes)));
  const int64_t n_items = (call.n_tiles + kGroups - 1) / kGroups;
  const unsigned n_blocks =
      kQuarters ? kQuarterBlocks * grid_of(context, n_items) : grid_of(context, n_items);
  launch_clusters(context, kernel, n_blocks, kGroups * 128, n_bytes, kQuarters ? kQuarterBlocks : 1,
                  call);
}

// Many activations leave room for one or two blocks a multiprocessor, so these are large.
template <int kBits, BrickMode kMode>
void launch(const RowsCall& call, CudaContext& context) {
  if (call.n_rows > 8) return launch<kBits, 2, 2, kMode>(call, context);
  const int n_blocks = kMode == BrickMode::kQuarters ? kQuarterBlocks : 1;
  const int64_t n_in = int64_t(call.n_across / n_blocks) * kBrickInputs;
  if (cores_bytes(call.n_rows, n_in) < kSharedCoresBytes)
    return launch<kBits, 1, 1, kMode>(call, context);
  launch<kBits, 1, 2, kMode>(call, context);
}

void launch(const RowsCall& call, int bits, BrickMode mode, CudaContext& context) {
  const bool is_narrow = bits == 4;
  switch (mode) {
    case BrickMode::kChain:
      return is_narrow ? launch<4, BrickMode::kChain>(call, context)
                       : launch<8, BrickMode::kChain>(call, context);
    case BrickMode::kQuarters:
      return is_narrow ? launch<4, BrickMode::kQuarters>(call, context)
                       : launch<8, BrickMode::kQuarters>(call, context);
    case BrickMode::kPair:
      return is_narrow ? launch<4, BrickMode::kPair>(call, context)
                       : launch<8, BrickMode::kPair>(call, context);
  }
}

BrickMode mode_of(const QuantLinear& op, const LinearPart& part) {
  if (op.epilogue == Epilogue::kSwiGlu) return BrickMode::kPair;
  const bool has_quarters = part.w->n_in % (kQuarterBlocks * kBrickInputs) == 0;
  return part.tree == ProductTree::kQuarters && has_quarters ? BrickMode::kQuarters
                                                             : BrickMode::kChain;
}

}  // namespace

bool takes_bricks_rows(const QuantLinear& op) {
  const int64_t n_rows = op.x.dim(0);
  if (!has_warpgroup_products() || n_rows > kRowsMax) return false;
  for (int p = 0; p < op.n_parts; ++p) {
    const LinearPart& part = op.parts[static_cast<size_t>(p)];
    if (!is_bricks(*part.w)) return false;
    const bool is_pair = op.epilogue == Epilogue::kSwiGlu;
    if (is_pair && (part.tree != ProductTree::kChain || part.w->bits != op.parts[0].w->bits))
      return false;
    const int n_blocks = mode_of(op, part) == BrickMode::kQuarters ? kQuarterBlocks : 1;
    if (!has_even_chains(part.w->n_in, n_blocks)) return false;
    if (cores_bytes(n_rows, part.w->n_in / n_blocks) > kCoresBytesMax) return false;
  }
  return true;
}

void bricks_rows_cuda(const QuantLinear& op, CudaContext& context) {
  const bool is_pair = op.epilogue == Epilogue::kSwiGlu;
  const int n_parts = is_pair ? 1 : op.n_parts;
  RowsCall call{.x = bf16_data(op.x)};
  call.n_rows = op.x.dim(0);
  call.n_across = static_cast<int>(op.x.dim(1) / kBrickInputs);
  for (int p = 0; p < n_parts; ++p) {
    const LinearPart& part = op.parts[static_cast<size_t>(p)];
    const BrickMode mode = mode_of(op, part);
    const int64_t tile_rows = tile_rows_of(mode);
    RowsPart& to = call.parts[call.n_parts++];
    to = {.bricks = bricks_of(*part.w), .n_out = part.w->n_out, .first_tile = call.n_tiles};
    if (is_pair) to.up = bricks_of(*op.parts[1].w);
    if (part.y.dtype == DType::kF32) {
      to.y_f32 = f32_data(part.y);
    } else {
      to.y_bf16 = bf16_data(part.y);
    }
    call.n_tiles += (part.w->n_out + tile_rows - 1) / tile_rows;
    const LinearPart* next = p + 1 < n_parts ? &op.parts[static_cast<size_t>(p) + 1] : nullptr;
    if (next != nullptr && mode_of(op, *next) == mode && next->w->bits == part.w->bits) continue;
    launch(call, part.w->bits, mode, context);
    call.n_parts = 0;
    call.n_tiles = 0;
  }
}

}  // namespace roost
