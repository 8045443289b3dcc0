// The CUDA kernels of quant_linear for few rows of activations over bricks (sm_90): each warp 16
// weight rows, a unit, with all parts of a call in one launch where they are alike. A matrix in
// quarters is shared by a cluster of four blocks, a quarter each.
#include "ops/quant_linear/bricks_rows.cuh"

#include "device/cuda/cluster.cuh"
#include "ops/quant_linear/bricks.cuh"

namespace roost {
namespace {

using namespace cuda;

constexpr int64_t kRowsMax = 16;  // with more, weights are better kept in shared memory
constexpr size_t kCoresBytesMax = size_t{160} << 10;
constexpr size_t kSharedBytesMax = size_t{224} << 10;  // of a block
constexpr int kQuarterBlocks = 4;
constexpr int kWarpsMin = 4, kWarpsMax = 20;  // of a block: fewer take long to load activations

struct RowsPart {
  const uint8_t *bricks, *up;
  uint16_t* y_bf16;  // one of these two
  float* y_f32;
  int64_t n_out, first_unit;
};

struct RowsCall {
  RowsPart parts[QuantLinear::kPartsMax];
  const uint16_t* x;
  int64_t n_rows, n_units;
  int n_parts, n_across;
  int block_units;  // of a block; warps without one only load activations
};

[[maybe_unused]] __device__ __forceinline__ const RowsPart& part_of(const RowsCall& call,
                                                                    int64_t unit) {
  int p = 0;
  while (p + 1 < call.n_parts && unit >= call.parts[p + 1].first_unit) ++p;
  return call.parts[p];
}

[[maybe_unused]] __device__ __forceinline__ void store(const RowsCall& call, const RowsPart& part,
                                                       int token, int64_t row, float value) {
  if (token >= call.n_rows || row >= part.n_out) return;
  if (part.y_f32 != nullptr) part.y_f32[token * part.n_out + row] = value;
  if (part.y_bf16 != nullptr) part.y_bf16[token * part.n_out + row] = bf16_of(value);
}

// The joined sums of quarters: this block's share of them, handed to store_joined(place, value).
// All threads of the cluster call it; place: the warp's, of 32 · kColumns · 4 numbers.
template <int kColumns, class Store>
__device__ __forceinline__ void join_cluster(float* place, const float (&sums)[kColumns * 4],
                                             const Store& store_joined) {
  place += threadIdx.x % 32;
#pragma unroll
  for (int i = 0; i < kColumns * 4; ++i) place[32 * i] = sums[i];
  cluster_barrier();
  const int rank = rank_in_cluster();
#pragma unroll
  for (int k = 0; k < kColumns; ++k) {
    const int i = rank * kColumns + k;
    float p[kQuarterBlocks];
#pragma unroll
    for (int q = 0; q < kQuarterBlocks; ++q) p[q] = read_of_rank(place + 32 * i, q);
    store_joined(i, (p[0] + p[1]) + (p[2] + p[3]));
  }
  cluster_barrier();  // all have read
}

template <int kBits, int kDepth, int kColumns, BrickMode kMode>
__global__ void __launch_bounds__(kWarpsMax * 32) sm90_bricks_linear_rows(RowsCall call) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  using Chain = BrickChain<kBits, kDepth>;
  constexpr int kBlocks = kMode == BrickMode::kQuarters ? kQuarterBlocks : 1;
  constexpr int kWarps = kMode == BrickMode::kPair ? 2 : 1;  // of a unit
  extern __shared__ uint4 dynamic_shared[];
  uint8_t* rings = reinterpret_cast<uint8_t*>(dynamic_shared);
  const int warp = threadIdx.x / 32;
  uint8_t* ring = rings + warp * Chain::kRingBytes;
  // Of a pair both have the second one's.
  float* place = reinterpret_cast<float*>(rings + (warp | (kWarps - 1)) * Chain::kRingBytes);
  const ActivationCores cores{rings + blockDim.x / 32 * Chain::kRingBytes, int(call.n_rows)};
  const int quarter = blockIdx.x % kBlocks, n = call.n_across / kBlocks;
  const int64_t n_items = (call.n_units + call.block_units - 1) / call.block_units;
  bool is_loaded = false;
  for (int64_t item = blockIdx.x / kBlocks; item < n_items; item += gridDim.x / kBlocks) {
    const int64_t unit = item * call.block_units + warp / kWarps;
    const bool has_unit = warp < call.block_units * kWarps && unit < call.n_units;
    const RowsPart& part = part_of(call, has_unit ? unit : 0);
    const int64_t at = has_unit ? unit - part.first_unit : 0;
    if (is_loaded && kMode == BrickMode::kPair) __syncthreads();  // the pair before has been read
    Chain chain(ring,
                (warp % kWarps == 0 ? part.bricks : part.up) +
                    (at / 4 * call.n_across + quarter * n) * brick_bytes_of(kBits),
                has_unit ? n : 0, int(at % 4));
    if (!is_loaded) {
      wait_for_inputs();
      load_cores(cores, n, [&](int token) {
        return call.x + (int64_t(token) * call.n_across + quarter * n) * kBrickInputs;
      });
      wait_for_cores();
      is_loaded = true;
    }
    float sums[kColumns * 4] = {};
    if (has_unit) chain.template run<kColumns>(cores, false, sums);
    if constexpr (kMode == BrickMode::kQuarters) {
      const int g = threadIdx.x % 32 / 4, q = threadIdx.x % 4;
      float* mine = reinterpret_cast<float*>(ring);
      join_cluster<kColumns>(mine, sums, [&](int i, float value) {
        if (has_unit)
          store(call, part, i / 4 * 8 + 2 * q + i % 2, at * kUnitRows + g + i % 4 / 2 * 8, value);
      });
    } else {
      if constexpr (kMode == BrickMode::kPair) {
        join_pair<kColumns>(place, sums);
        if (warp % 2 == 1) continue;
      }
      for_brick_sums<kColumns>(sums, at * kUnitRows, [&](int token, int64_t row, float value) {
        if (has_unit) store(call, part, token, row, value);
      });
    }
  }
#endif
}

// Blocks that a card runs at once when each has a multiprocessor: clusters of four do not fill its
// parts.
int64_t n_places(int cluster_blocks) {
  const int n = n_multiprocessors();
  return std::max(cluster_blocks == 1 ? n : n * 7 / 8 / cluster_blocks, 1);
}

template <int kBits, int kDepth, int kColumns, BrickMode kMode>
void launch(const RowsCall& call, size_t cores, CudaContext& context) {
  constexpr int kBlocks = kMode == BrickMode::kQuarters ? kQuarterBlocks : 1;
  constexpr int kWarps = kMode == BrickMode::kPair ? 2 : 1;
  const auto kernel = sm90_bricks_linear_rows<kBits, kDepth, kColumns, kMode>;
  const int n_warps = std::max(call.block_units * kWarps, kWarpsMin);
  const size_t n_bytes = size_t(n_warps) * BrickChain<kBits, kDepth>::kRingBytes + cores;
  check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                             static_cast<int>(n_bytes)));
  const int64_t n_items = (call.n_units + call.block_units - 1) / call.block_units;
  launch_clusters(context, kernel, kBlocks * grid_of(context, n_items), 32 * n_warps, n_bytes,
                  kBlocks, call);
}

// As many units a block as give every multiprocessor one block, so that activations are loaded once
// for all of them; where those do not fit, several blocks with as many each. Many warps need less
// of a ring to keep the memory busy.
template <int kBits, int kColumns, BrickMode kMode>
void launch(RowsCall call, CudaContext& context) {
  constexpr int kBlocks = kMode == BrickMode::kQuarters ? kQuarterBlocks : 1;
  constexpr int kWarps = kMode == BrickMode::kPair ? 2 : 1;
  constexpr int kDeep = kBits == 4 ? 8 : 6, kShallow = 4;
  const size_t cores = cores_bytes(call.n_rows, int64_t(call.n_across / kBlocks) * kBrickInputs);
  const auto n_fit = [&](size_t ring_bytes) {
    const auto n = static_cast<int64_t>((kSharedBytesMax - cores) / ring_bytes);
    return std::min<int64_t>(n, kWarpsMax) / kWarps;
  };
  const int64_t n_wanted = (call.n_units + n_places(kBlocks) - 1) / n_places(kBlocks);
  const auto divide = [&](int64_t n_max) {
    const int64_t n_blocks = (n_wanted + n_max - 1) / n_max;
    call.block_units = static_cast<int>((n_wanted + n_blocks - 1) / n_blocks);
  };
  const int64_t n_deep = n_fit(BrickChain<kBits, kDeep>::kRingBytes);
  if constexpr (kColumns == 2) {
    const int64_t n_shallow = n_fit(BrickChain<kBits, kShallow>::kRingBytes);
    if (n_wanted > n_deep && n_shallow > n_deep) {
      divide(n_shallow);
      return launch<kBits, kShallow, kColumns, kMode>(call, cores, context);
    }
  }
  divide(n_deep);
  launch<kBits, kDeep, kColumns, kMode>(call, cores, context);
}

template <int kBits, BrickMode kMode>
void launch(const RowsCall& call, CudaContext& context) {
  if (call.n_rows > 8) return launch<kBits, 2, kMode>(call, context);
  launch<kBits, 1, kMode>(call, context);
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
    RowsPart& to = call.parts[call.n_parts++];
    to = {.bricks = bricks_of(*part.w), .n_out = part.w->n_out, .first_unit = call.n_units};
    if (is_pair) to.up = bricks_of(*op.parts[1].w);
    if (part.y.dtype == DType::kF32) {
      to.y_f32 = f32_data(part.y);
    } else {
      to.y_bf16 = bf16_data(part.y);
    }
    call.n_units += (part.w->n_out + kUnitRows - 1) / kUnitRows;
    const LinearPart* next = p + 1 < n_parts ? &op.parts[static_cast<size_t>(p) + 1] : nullptr;
    if (next != nullptr && mode_of(op, *next) == mode && next->w->bits == part.w->bits) continue;
    launch(call, part.w->bits, mode, context);
    call.n_parts = 0;
    call.n_units = 0;
  }
}

}  // namespace roost
