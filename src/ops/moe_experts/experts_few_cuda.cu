// The CUDA kernels of moe_experts for few rows over bricks: a list of the experts that any row
// chose, then gate and up, then down. Every expert of the list is multiplied with all rows, since
// its weights are what costs; only rows that chose it keep the result. The shared expert comes
// first.
#include "ops/moe_experts/experts_few.cuh"

#include "ops/quant_linear/bricks.cuh"

namespace roost {
namespace {

using namespace cuda;

constexpr int kListThreads = 256;
constexpr int kExpertsMax = 1024;
constexpr int kTokensMax = int(kBrickTokensMax);

struct FewLists {
  int32_t* n_active;
  int32_t* active;  // ids, ascending
  int32_t* slots;   // [active][kTokensMax]: which choice of the row it was, or -1
};

struct FewCall {
  FewLists lists;
  const uint8_t *gate, *up, *down;                       // of expert 0
  const uint8_t *shared_gate, *shared_up, *shared_down;  // or null
  int64_t distance;                                      // from one expert to the next
  const uint4* packed;
  uint4 *inner, *shared_inner;  // packed, an expert behind the other
  int64_t inner_runs;           // of one expert
  uint16_t* y;                  // [T, n_slots, h]
  int64_t n_rows, n_chosen, n_slots, hidden, width, shared_width;
  int64_t n_shared_tiles, n_tiles;  // of a launch: the shared expert's, then one expert's
};

// By one block. Which thread notes an expert does not show: all note the same.
__device__ __forceinline__ void make_lists(const int32_t* ids, int n_rows, int n_chosen,
                                           int n_experts, const FewLists& lists) {
  __shared__ int place_of[kExpertsMax];
  for (int e = threadIdx.x; e < n_experts; e += kListThreads) place_of[e] = 0;
  __syncthreads();
  for (int i = threadIdx.x; i < n_rows * n_chosen; i += kListThreads) place_of[ids[i]] = 1;
  __syncthreads();
  if (threadIdx.x < 32) {
    int n_before = 0;
    for (int first = 0; first < n_experts; first += 32) {
      const int e = first + int(threadIdx.x);
      const bool is_active = e < n_experts && place_of[e] != 0;
      const unsigned mask = __ballot_sync(~0u, is_active);
      const int place = n_before + __popc(mask & ((1u << threadIdx.x) - 1));
      if (is_active) {
        place_of[e] = place;
        lists.active[place] = e;
        for (int t = 0; t < n_rows; ++t) lists.slots[place * kTokensMax + t] = -1;
      }
      n_before += __popc(mask);
    }
    if (threadIdx.x == 0) *lists.n_active = n_before;
  }
  __syncthreads();
  for (int i = threadIdx.x; i < n_rows * n_chosen; i += kListThreads)
    lists.slots[place_of[ids[i]] * kTokensMax + i / n_chosen] = i % n_chosen;
}

// The first block makes the lists, the others pack the rows.
__global__ void __launch_bounds__(kListThreads)
    sm80_experts_few_prepare(const int32_t* ids, int n_rows, int n_chosen, int n_experts,
                             FewLists lists, PackCall pack) {
  wait_for_inputs();
  if (blockIdx.x == 0) make_lists(ids, n_rows, n_chosen, n_experts, lists);
  const int n_packers = max(int(gridDim.x) - 1, 1), packer = max(int(blockIdx.x) - 1, 0);
  if (blockIdx.x == 0 && gridDim.x > 1) return;
  pack_rows(pack, int64_t(packer) * kListThreads + threadIdx.x, int64_t(n_packers) * kListThreads);
}

// How many items there are, looked up only when item is none of the shared expert's.
__device__ __forceinline__ int64_t n_items_of(const FewCall& c, int64_t item) {
  if (item < c.n_shared_tiles) return c.n_shared_tiles;
  return c.n_shared_tiles + *c.lists.n_active * c.n_tiles;
}

template <int kBits, int kColumns>
__global__ void __launch_bounds__(kBrickThreads) sm80_experts_few_gate_up(FewCall c) {
  // The shared expert's weights may be asked for before the lists are there.
  if (blockIdx.x >= c.n_shared_tiles) wait_for_inputs();
  for (int64_t item = blockIdx.x; item < n_items_of(c, item); item += gridDim.x) {
    const bool is_shared = item < c.n_shared_tiles;
    const int64_t at = is_shared ? item : item - c.n_shared_tiles;
    const int64_t u = is_shared ? 0 : at / c.n_tiles, width = is_shared ? c.shared_width : c.width;
    const int64_t skip = is_shared ? 0 : c.lists.active[u] * c.distance;
    uint4* inner = is_shared ? c.shared_inner : c.inner + u * c.inner_runs;
    __syncthreads();  // shared sums of the item before have been read
    run_brick_tile<kBits, kColumns, BrickMode::kPair>(
        (is_shared ? c.shared_gate : c.gate) + skip, (is_shared ? c.shared_up : c.up) + skip,
        int(c.hidden / kBrickInputs), int(is_shared ? at : at % c.n_tiles), c.packed,
        [&](int token, int64_t row, float value) {
          if (row >= width) return;
          const PackedPlace place = packed_place<kColumns>(token, row);
          reinterpret_cast<uint16_t*>(inner + place.run)[place.element] = bf16_of(value);
        });
  }
}

template <int kBits, int kColumns, BrickMode kSharedMode>
__global__ void __launch_bounds__(kBrickThreads) sm80_experts_few_down(FewCall c) {
  if (blockIdx.x >= c.n_shared_tiles) wait_for_inputs();
  for (int64_t item = blockIdx.x; item < n_items_of(c, item); item += gridDim.x) {
    __syncthreads();  // shared sums of the item before have been read
    if (item < c.n_shared_tiles) {
      run_brick_tile<kBits, kColumns, kSharedMode>(
          c.shared_down, nullptr, int(c.shared_width / kBrickInputs), int(item), c.shared_inner,
          [&](int token, int64_t row, float value) {
            if (token >= c.n_rows || row >= c.hidden) return;
            c.y[(token * c.n_slots + c.n_chosen) * c.hidden + row] = bf16_of(value);
          });
      continue;
    }
    const int64_t at = item - c.n_shared_tiles, u = at / c.n_tiles;
    const int32_t* slots = c.lists.slots + u * kTokensMax;
    run_brick_tile<kBits, kColumns, BrickMode::kChain>(
        c.down + c.lists.active[u] * c.distance, nullptr, int(c.width / kBrickInputs),
        int(at % c.n_tiles), c.inner + u * c.inner_runs, [&](int token, int64_t row, float value) {
          if (token >= c.n_rows || row >= c.hidden || slots[token] < 0) return;
          c.y[(token * c.n_slots + slots[token]) * c.hidden + row] = bf16_of(value);
        });
  }
}

template <int kBits, int kColumns>
void launch(FewCall call, int64_t n_active_max, CudaContext& context) {
  const auto tiles = [](int64_t n_out, BrickMode mode) {
    return (n_out + tile_rows_of(mode) - 1) / tile_rows_of(mode);
  };
  call.n_tiles = tiles(call.width, BrickMode::kPair);
  call.n_shared_tiles = tiles(call.shared_width, BrickMode::kPair);
  launch_kernel(context, sm80_experts_few_gate_up<kBits, kColumns>,
                grid_of(context, call.n_shared_tiles + n_active_max * call.n_tiles), kBrickThreads,
                0, call);
  const bool in_quarters = call.shared_width % (4 * kBrickInputs) == 0;
  call.n_tiles = tiles(call.hidden, BrickMode::kChain);
  if (call.shared_width > 0)
    call.n_shared_tiles =
        tiles(call.hidden, in_quarters ? BrickMode::kQuarters : BrickMode::kChain);
  launch_kernel(context,
                in_quarters ? sm80_experts_few_down<kBits, kColumns, BrickMode::kQuarters>
                            : sm80_experts_few_down<kBits, kColumns, BrickMode::kChain>,
                grid_of(context, call.n_shared_tiles + n_active_max * call.n_tiles), kBrickThreads,
                0, call);
}

template <int kBits>
void launch(const FewCall& call, int n_columns, int64_t n_active_max, CudaContext& context) {
  if (n_columns == 1) return launch<kBits, 1>(call, n_active_max, context);
  if (n_columns == 2) return launch<kBits, 2>(call, n_active_max, context);
  return launch<kBits, 4>(call, n_active_max, context);
}

bool are_bricks(const GatedMlp& mlp, int bits) {
  const auto takes = [&](const QuantMatrix& w) { return is_bricks(w) && w.bits == bits; };
  return takes(mlp.gate) && takes(mlp.up) && takes(mlp.down);
}

}  // namespace

bool takes_experts_few(const MoeExperts& op) {
  return op.x.dim(0) <= kTokensMax && op.experts.size() <= kExpertsMax && has_equal_bricks(op);
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
  const int64_t n_rows = std::min(sizes.rows, kBrickTokensMax);
  const auto n_active =
      static_cast<size_t>(std::min(n_rows * sizes.experts_per_row, sizes.experts));
  const int64_t width = (sizes.width + kBrickInputs - 1) / kBrickInputs * kBrickInputs;
  return (n_active + 1) * packed_bytes(4, width) + packed_bytes(4, sizes.hidden + kBrickInputs) +
         n_active * (kTokensMax + 1) * sizeof(int32_t) + 8 * DeviceArena::kAlign;
}

void experts_few_cuda(const MoeExperts& op, CudaContext& context) {
  const DeviceArena::Scope scope(context.scratch);
  const GatedMlp& first = op.experts[0];
  const int64_t n_rows = op.x.dim(0), n_chosen = op.ids.dim(1);
  const auto n_experts = static_cast<int64_t>(op.experts.size());
  const int64_t n_active_max = std::min(n_rows * n_chosen, n_experts);
  const int n_columns = brick_columns_of(n_rows);
  const auto take = [&](int64_t n) {
    return context.scratch.take<int32_t>(static_cast<size_t>(n));
  };

  FewCall call{.lists = {take(1), take(n_active_max), take(n_active_max * kTokensMax)}};
  call.gate = bricks_of(first.gate);
  call.up = bricks_of(first.up);
  call.down = bricks_of(first.down);
  call.distance = n_experts > 1 ? op.experts[1].gate.codes - first.gate.codes : 0;
  const PackCall pack = take_packed(bf16_data(op.x), n_rows, first.gate.n_in, n_columns, context);
  launch_kernel(context, sm80_experts_few_prepare,
                1 + grid_for_threads(context, n_packed_runs(pack), kListThreads), kListThreads, 0,
                i32_data(op.ids), static_cast<int>(n_rows), static_cast<int>(n_chosen),
                static_cast<int>(n_experts), call.lists, pack);
  call.packed = pack.packed;
  call.y = bf16_data(op.y);
  call.n_rows = n_rows;
  call.n_chosen = n_chosen;
  call.n_slots = op.y.dim(1);
  call.hidden = first.gate.n_in;
  call.width = first.gate.n_out;
  const auto take_runs = [&](size_t n_bytes) {
    return reinterpret_cast<uint4*>(context.scratch.take<std::byte>(n_bytes));
  };
  const size_t inner_bytes = packed_bytes(n_columns, call.width);
  call.inner = take_runs(static_cast<size_t>(n_active_max) * inner_bytes);
  call.inner_runs = static_cast<int64_t>(inner_bytes / sizeof(uint4));
  if (op.shared != nullptr) {
    call.shared_gate = bricks_of(op.shared->gate);
    call.shared_up = bricks_of(op.shared->up);
    call.shared_down = bricks_of(op.shared->down);
    call.shared_width = op.shared->gate.n_out;
    call.shared_inner = take_runs(packed_bytes(n_columns, call.shared_width));
  }
  if (first.gate.bits == 4) {
    launch<4>(call, n_columns, n_active_max, context);
  } else {
    launch<8>(call, n_columns, n_active_max, context);
  }
}

}  // namespace roost
