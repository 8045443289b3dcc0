// The CUDA kernels of moe_experts for few rows over bricks (sm_90a): gate and up, then down. A
// block takes a tile of one expert's weights and multiplies it with the rows that chose the expert;
// which they are each block finds by itself. The shared expert, which all rows have, comes first.
#include "ops/moe_experts/experts_few.cuh"

#include "ops/quant_linear/bricks.cuh"

namespace roost {
namespace {

using namespace cuda;

constexpr int kExpertsMax = 1024;
constexpr int kTokensMax = 16;    // with more, weights are better kept in shared memory
constexpr int kRowsTogether = 8;  // of a product
constexpr int kThreads = 128;     // four units a block
constexpr int kWarps = kThreads / 32;

template <int kBits>
using FewChain = BrickChain<kBits, kBits == 4 ? 8 : 6>;
constexpr int64_t kCoresBytesMax = int64_t{96} << 10;

struct FewCall {
  const int32_t* ids;                                    // [T, K]
  const uint8_t *gate, *up, *down;                       // of expert 0
  const uint8_t *shared_gate, *shared_up, *shared_down;  // or null
  int64_t distance;                                      // from one expert to the next
  const uint16_t* x;                                     // [T, h]
  uint16_t* inner;                                       // [T, n_slots, width_max]
  uint16_t* y;                                           // [T, n_slots, h]
  int64_t n_slots, hidden, width, shared_width, width_max;
  int64_t n_shared_tiles, n_tiles, n_items;  // of a launch: the shared expert's, then one expert's
  int n_rows, n_chosen;
};

// The rows of one expert, ascending: their places t·n_slots + s in y.
struct FewRows {
  uint32_t chosen[kExpertsMax / 32];  // a bit for each expert that any row chose
  int32_t places[kTokensMax];
  int expert, n;
};

// All rows, in their last slots. All threads call it; the rows are there behind it.
[[maybe_unused]] __device__ __forceinline__ void take_all_rows(const FewCall& c, FewRows& rows) {
  __syncthreads();  // the item before is done with its rows
  if (int(threadIdx.x) < c.n_rows)
    rows.places[threadIdx.x] = int32_t(threadIdx.x * c.n_slots + c.n_chosen);
  if (threadIdx.x == 0) rows.n = c.n_rows;
  __syncthreads();
}

// Those of the u-th expert that any row chose, by ascending id; none: rows.n is 0.
[[maybe_unused]] __device__ __forceinline__ void find_rows(const FewCall& c, int u, FewRows& rows) {
  if (c.n_rows == 1) {
    __syncthreads();  // the item before is done with its row
    if (threadIdx.x == 0) rows.expert = c.ids[u], rows.places[0] = u, rows.n = 1;
    __syncthreads();
    return;
  }
  const int n_ids = c.n_rows * c.n_chosen, lane = threadIdx.x % 32;
  __syncthreads();  // the item before is done with its rows
  if (threadIdx.x < kExpertsMax / 32) rows.chosen[threadIdx.x] = 0;
  __syncthreads();
  for (int i = threadIdx.x; i < n_ids; i += kThreads)
    atomicOr(&rows.chosen[c.ids[i] / 32], 1u << (c.ids[i] % 32));
  __syncthreads();
  if (threadIdx.x < 32) {
    const uint32_t mine = rows.chosen[lane];
    int before = __popc(mine);
    for (int step = 1; step < 32; step *= 2) {
      const int other = __shfl_up_sync(~0u, before, step);
      if (lane >= step) before += other;
    }
    before -= __popc(mine);
    const bool has_it = u >= before && u < before + __popc(mine);
    const int bit = has_it ? int(__fns(mine, 0, u - before + 1)) : 0;
    const unsigned who = __ballot_sync(~0u, has_it);
    const int expert = who == 0 ? -1 : __shfl_sync(~0u, 32 * lane + bit, __ffs(int(who)) - 1);
    int n = 0;
    for (int first = 0; first < n_ids && expert >= 0; first += 32) {
      const int i = first + lane;
      const bool is_its = i < n_ids && c.ids[i] == expert;
      const unsigned mask = __ballot_sync(~0u, is_its);
      if (is_its)
        rows.places[n + __popc(mask & ((1u << lane) - 1))] =
            int32_t(i / c.n_chosen * c.n_slots + i % c.n_chosen);
      n += __popc(mask);
    }
    if (lane == 0) rows.expert = expert, rows.n = n;
  }
  __syncthreads();
}

// The units of a tile, one a warp or two warps a pair, times the rows, at most kRowsTogether at a
// time: bricks are read again for more. Calls store(place, row, value) for every output. waits:
// nothing was waited for yet.
template <int kBits, BrickMode kMode, class RowOf, class Store>
__device__ __forceinline__ void run_tile(const uint8_t* bricks, const uint8_t* up, int n_across,
                                         int tile, const FewRows& rows, bool waits,
                                         const RowOf& row_of, const Store& store) {
  using Chain = FewChain<kBits>;
  constexpr bool kIsPair = kMode == BrickMode::kPair;
  extern __shared__ uint4 dynamic_shared[];
  uint8_t* rings = reinterpret_cast<uint8_t*>(dynamic_shared);
  const int warp = threadIdx.x / 32;
  const int unit = kIsPair ? tile * (kWarps / 2) + warp / 2 : tile * kWarps + warp;
  uint8_t* ring = rings + warp * Chain::kRingBytes;
  float* place = reinterpret_cast<float*>(rings + (warp | 1) * Chain::kRingBytes);
  for (int first = 0; first < rows.n; first += kRowsTogether) {
    const ActivationCores cores{rings + kWarps * Chain::kRingBytes,
                                min(kRowsTogether, rows.n - first)};
    if (!waits) __syncthreads();  // the rows before have been multiplied
    Chain chain(ring,
                (kIsPair && warp % 2 == 1 ? up : bricks) +
                    int64_t(unit / 4) * n_across * brick_bytes_of(kBits),
                n_across, unit % 4);
    if (waits) wait_for_inputs();
    waits = false;
    load_cores(cores, n_across, [&](int token) { return row_of(rows.places[first + token]); });
    wait_for_cores();
    float sums[4];
    chain.template run<1>(cores, kMode == BrickMode::kQuarters, sums);
    if constexpr (kIsPair) join_pair<1>(place, sums);
    if (kIsPair && warp % 2 == 1) continue;
    for_brick_sums<1>(sums, unit * kUnitRows, [&](int token, int64_t row, float value) {
      if (token < cores.n_rows) store(rows.places[first + token], row, value);
    });
  }
}

template <int kBits>
__global__ void __launch_bounds__(kThreads) sm90_experts_few_gate_up(FewCall c) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  __shared__ FewRows rows;
  // The shared expert's weights may be asked for before the rows are there.
  const bool starts_shared = blockIdx.x < c.n_shared_tiles;
  if (!starts_shared) wait_for_inputs();
  for (int64_t item = blockIdx.x; item < c.n_items; item += gridDim.x) {
    const bool is_shared = item < c.n_shared_tiles;
    const int64_t at = is_shared ? item : item - c.n_shared_tiles;
    const int64_t width = is_shared ? c.shared_width : c.width;
    if (is_shared) {
      take_all_rows(c, rows);
    } else {
      find_rows(c, int(at / c.n_tiles), rows);
    }
    const int64_t skip = is_shared ? 0 : rows.expert * c.distance;
    run_tile<kBits, BrickMode::kPair>(
        (is_shared ? c.shared_gate : c.gate) + skip, (is_shared ? c.shared_up : c.up) + skip,
        int(c.hidden / kBrickInputs), int(is_shared ? at : at % c.n_tiles), rows,
        starts_shared && item == blockIdx.x,
        [&](int32_t place) { return c.x + place / c.n_slots * c.hidden; },
        [&](int32_t place, int64_t row, float value) {
          if (row < width) c.inner[place * c.width_max + row] = bf16_of(value);
        });
  }
#endif
}

template <int kBits, BrickMode kSharedMode>
__global__ void __launch_bounds__(kThreads) sm90_experts_few_down(FewCall c) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  __shared__ FewRows rows;
  const bool starts_shared = blockIdx.x < c.n_shared_tiles;
  if (!starts_shared) wait_for_inputs();
  const auto row_of = [&](int32_t place) { return c.inner + place * c.width_max; };
  const auto store = [&](int32_t place, int64_t row, float value) {
    if (row < c.hidden) c.y[place * c.hidden + row] = bf16_of(value);
  };
  for (int64_t item = blockIdx.x; item < c.n_items; item += gridDim.x) {
    if (item < c.n_shared_tiles) {
      take_all_rows(c, rows);
      run_tile<kBits, kSharedMode>(c.shared_down, nullptr, int(c.shared_width / kBrickInputs),
                                   int(item), rows, item == blockIdx.x, row_of, store);
      continue;
    }
    const int64_t at = item - c.n_shared_tiles;
    find_rows(c, int(at / c.n_tiles), rows);
    run_tile<kBits, BrickMode::kChain>(c.down + rows.expert * c.distance, nullptr,
                                       int(c.width / kBrickInputs), int(at % c.n_tiles), rows,
                                       false, row_of, store);
  }
#endif
}

template <int kBits>
size_t shared_bytes(const FewCall& call, int64_t n_in) {
  return size_t{kWarps} * FewChain<kBits>::kRingBytes +
         cores_bytes(std::min(call.n_rows, kRowsTogether), n_in);
}

template <int kBits>
void launch(FewCall call, int64_t n_active_max, CudaContext& context) {
  const auto run = [&](void (*kernel)(FewCall), int64_t n_in) {
    const size_t n_bytes = shared_bytes<kBits>(call, n_in);
    check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                               static_cast<int>(n_bytes)));
    call.n_items = call.n_shared_tiles + n_active_max * call.n_tiles;
    launch_kernel(context, kernel, grid_of(context, call.n_items), kThreads, n_bytes, call);
  };
  const auto tiles = [](int64_t n_out, int n_units) {
    return (n_out + n_units * kUnitRows - 1) / (n_units * kUnitRows);
  };
  call.n_tiles = tiles(call.width, kWarps / 2);
  call.n_shared_tiles = tiles(call.shared_width, kWarps / 2);
  run(sm90_experts_few_gate_up<kBits>, call.hidden);
  const bool in_quarters = call.shared_width % (4 * kBrickInputs) == 0;
  call.n_tiles = tiles(call.hidden, kWarps);
  if (call.shared_width > 0) call.n_shared_tiles = call.n_tiles;
  run(in_quarters ? sm90_experts_few_down<kBits, BrickMode::kQuarters>
                  : sm90_experts_few_down<kBits, BrickMode::kChain>,
      call.width_max);
}

bool are_bricks(const GatedMlp& mlp, int bits) {
  const auto takes = [&](const QuantMatrix& w) { return is_bricks(w) && w.bits == bits; };
  return takes(mlp.gate) && takes(mlp.up) && takes(mlp.down);
}

}  // namespace

bool takes_experts_few(const MoeExperts& op) {
  const int64_t n_rows = op.x.dim(0), n_in = std::max(op.x.dim(1), op.experts[0].gate.n_out);
  const int64_t n_shared_in = op.shared != nullptr ? op.shared->gate.n_out : 0;
  if (op.shared != nullptr) {
    const int64_t width = op.shared->gate.n_out;
    if (!has_even_chains(width, width % (4 * kBrickInputs) == 0 ? 4 : 1)) return false;
  }
  return has_warpgroup_products() && has_even_chains(op.x.dim(1), 1) &&
         has_even_chains(op.experts[0].gate.n_out, 1) && n_rows <= kTokensMax &&
         op.experts.size() <= kExpertsMax &&
         static_cast<int64_t>(cores_bytes(kRowsTogether, std::max(n_in, n_shared_in))) <=
             kCoresBytesMax &&
         has_equal_bricks(op);
}

bool has_equal_bricks(const MoeExperts& op) {
  const size_t n_experts = op.experts.size();
  const GatedMlp& first = op.experts[0];
  if (!are_bricks(first, first.gate.bits)) return false;
  if (op.shared != nullptr && !are_bricks(*op.shared, first.gate.bits)) return false;
  if (n_experts == 1) return true;
  const std::ptrdiff_t distance = op.experts[1].gate.codes - first.gate.codes;
  for (size_t e = 1; e < n_experts; ++e) {
    const GatedMlp& mlp = op.experts[e];
    const std::ptrdiff_t skip = static_cast<std::ptrdiff_t>(e) * distance;
    if (mlp.gate.codes - first.gate.codes != skip || mlp.up.codes - first.up.codes != skip ||
        mlp.down.codes - first.down.codes != skip)
      return false;
  }
  return true;
}

size_t experts_few_scratch_bytes(const MoeSizes& sizes) {
  const int64_t n_rows = std::min<int64_t>(sizes.rows, kTokensMax);
  return static_cast<size_t>(n_rows * (sizes.experts_per_row + 1) * sizes.width) * 2 +
         DeviceArena::kAlign;
}

void experts_few_cuda(const MoeExperts& op, CudaContext& context) {
  const DeviceArena::Scope scope(context.scratch);
  const GatedMlp& first = op.experts[0];
  const int64_t n_rows = op.x.dim(0);
  const auto n_experts = static_cast<int64_t>(op.experts.size());
  FewCall call{.ids = i32_data(op.ids)};
  call.gate = bricks_of(first.gate);
  call.up = bricks_of(first.up);
  call.down = bricks_of(first.down);
  call.distance = n_experts > 1 ? op.experts[1].gate.codes - first.gate.codes : 0;
  call.x = bf16_data(op.x);
  call.y = bf16_data(op.y);
  call.n_rows = static_cast<int>(n_rows);
  call.n_chosen = static_cast<int>(op.ids.dim(1));
  call.n_slots = op.y.dim(1);
  call.hidden = first.gate.n_in;
  call.width = first.gate.n_out;
  if (op.shared != nullptr) {
    call.shared_gate = bricks_of(op.shared->gate);
    call.shared_up = bricks_of(op.shared->up);
    call.shared_down = bricks_of(op.shared->down);
    call.shared_width = op.shared->gate.n_out;
  }
  call.width_max = std::max(call.width, call.shared_width);
  call.inner =
      context.scratch.take<uint16_t>(static_cast<size_t>(n_rows * call.n_slots * call.width_max));
  const int64_t n_active_max = std::min(n_rows * call.n_chosen, n_experts);
  if (first.gate.bits == 4) {
    launch<4>(call, n_active_max, context);
  } else {
    launch<8>(call, n_active_max, context);
  }
}

}  // namespace roost
