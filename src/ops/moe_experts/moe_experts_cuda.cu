// The CUDA kernels of moe_experts, plain: lists of each expert's rows are made on the card, then
// gate and up with their SwiGLU product, then down. The shared expert is one more list: all rows.
#include <vector>

#include "ops/moe_experts/experts_few.cuh"
#include "ops/moe_experts/experts_many.cuh"
#include "ops/quant_linear/product.cuh"

namespace roost {
namespace {

using namespace cuda;

constexpr int kListThreads = 256;
constexpr int kTokens = 16;  // experts have few rows each

// The bytes of one matrix; what all experts have in common comes with the call.
struct Bytes {
  const uint8_t *codes, *scales, *biases;
};

struct ExpertBytes {
  Bytes gate, up, down;
};

__device__ __forceinline__ WeightView with_bytes(WeightView layout, const Bytes& bytes) {
  layout.codes = bytes.codes;
  layout.scales = bytes.scales;
  layout.biases = bytes.biases;
  return layout;
}

// The places (t·K + s) of expert e are order[first[e] .. first[e + 1]), ascending.
struct Lists {
  int32_t* first;  // [E + 1]
  int32_t* order;  // [T·K]
};

// Σ of the block, and of the threads before this one.
__device__ int2 block_counts(int value) {
  __shared__ int of_warp[kListThreads / 32];
  const unsigned mask = __ballot_sync(~0u, value != 0);
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  __syncthreads();
  if (lane == 0) of_warp[warp] = __popc(mask);
  __syncthreads();
  int total = 0, before = __popc(mask & ((1u << lane) - 1));
  for (int i = 0; i < kListThreads / 32; ++i) {
    if (i < warp) before += of_warp[i];
    total += of_warp[i];
  }
  return make_int2(total, before);
}

// One block an expert: counts what belongs to lower ids, then writes its own places in order.
__global__ void __launch_bounds__(kListThreads)
    sm80_expert_lists(const int32_t* ids, int64_t n_places, int n_experts, Lists lists) {
  wait_for_inputs();
  for (int e = blockIdx.x; e < n_experts; e += gridDim.x) {
    int first = 0;
    for (int64_t at = 0; at < n_places; at += kListThreads) {
      const int64_t i = at + threadIdx.x;
      first += block_counts(i < n_places && ids[i] < e ? 1 : 0).x;
    }
    int next = first;
    for (int64_t at = 0; at < n_places; at += kListThreads) {
      const int64_t i = at + threadIdx.x;
      const bool is_mine = i < n_places && ids[i] == e;
      const int2 counts = block_counts(is_mine ? 1 : 0);
      if (is_mine) lists.order[next + counts.y] = static_cast<int32_t>(i);
      next += counts.x;
    }
    if (threadIdx.x == 0) lists.first[e] = first;
    if (threadIdx.x == 0 && e == n_experts - 1) lists.first[n_experts] = next;
  }
}

// One of the two launches over all experts and their 64-output tiles; a block walks over the rows
// of its expert. is_down: inner rows to y, else x to inner rows.
struct ExpertCall {
  const ExpertBytes* experts;
  WeightView gate, up, down;  // of every expert, but for its bytes
  int64_t n_experts, n_tiles, first_item;
  Lists lists;        // of routed experts
  int64_t n_all;      // the shared expert's rows; 0: the call is over routed experts
  const uint16_t* x;  // [T, h]
  uint16_t* inner;    // [places, mi]
  uint16_t* y;        // [T, n_slots, h]
  int64_t n_chosen, n_slots;
  bool in_quarters;  // of the down product
};

template <bool is_down>
__device__ __forceinline__ void run_rows(const ExpertCall& call, const ExpertBytes& expert,
                                         const int32_t* places, int64_t n_places, int64_t first_row,
                                         ProductTile<kTokens>& tile) {
  const WeightView w =
      is_down ? with_bytes(call.down, expert.down) : with_bytes(call.gate, expert.gate);
  for (int64_t begin = 0; begin < n_places; begin += kTokens) {
    const auto place_of = [&](int token) {
      return places == nullptr ? begin + token : int64_t(places[begin + token]);
    };
    __syncthreads();  // the rows before have been read
    if (threadIdx.x < kTokens) {
      const uint16_t* row = nullptr;
      if (begin + threadIdx.x < n_places) {
        const int64_t place = place_of(threadIdx.x);
        // A place of the shared expert is a row; of routed ones, row·K + slot.
        row = is_down ? call.inner + place * w.n_in
                      : call.x + (places == nullptr ? place : place / call.n_chosen) * w.n_in;
      }
      tile.rows[threadIdx.x] = row;
    }
    ProductTile<kTokens>::Sums sums;
    multiply<kTokens>(w, first_row, is_down && call.in_quarters, tile, sums);
    if constexpr (!is_down) {
      ProductTile<kTokens>::Sums up;
      multiply<kTokens>(with_bytes(call.up, expert.up), first_row, false, tile, up);
      swiglu(sums, up);
    }
    for_sums<kTokens>(sums, [&](int token, int output, float value) {
      const int64_t r = first_row + output;
      if (begin + token >= n_places || r >= w.n_out) return;
      const int64_t place = place_of(token);
      if constexpr (is_down) {
        const int64_t slot = places == nullptr
                                 ? place * call.n_slots + call.n_chosen
                                 : place / call.n_chosen * call.n_slots + place % call.n_chosen;
        call.y[slot * w.n_out + r] = bf16_of(value);
      } else {
        call.inner[place * w.n_out + r] = bf16_of(value);
      }
    });
  }
}

template <bool is_down>
__global__ void __launch_bounds__(kProductThreads) sm80_qx_bf16_experts(ExpertCall call) {
  wait_for_inputs();
  __shared__ ProductTile<kTokens> tile;
  const int64_t item = call.first_item + blockIdx.x;
  const int64_t e = item / call.n_tiles, first_row = item % call.n_tiles * kProductOutputs;
  const bool is_shared = call.n_all > 0;
  const int32_t begin = is_shared ? 0 : call.lists.first[e];
  const int64_t n_places = is_shared ? call.n_all : call.lists.first[e + 1] - begin;
  run_rows<is_down>(call, call.experts[e], is_shared ? nullptr : call.lists.order + begin, n_places,
                    first_row, tile);
}

// One item a block, in as many launches as the largest grid makes necessary: a loop over items in
// the kernel costs registers that it does not have.
template <bool is_down>
void launch(ExpertCall call, int64_t n_out, CudaContext& context) {
  call.n_tiles = (n_out + kProductOutputs - 1) / kProductOutputs;
  const int64_t n_items = call.n_experts * call.n_tiles;
  while (call.first_item < n_items) {
    const unsigned n_blocks = grid_of(context, n_items - call.first_item);
    launch_kernel(context, sm80_qx_bf16_experts<is_down>, n_blocks, kProductThreads, 0, call);
    call.first_item += n_blocks;
  }
}

ExpertBytes bytes_of(const GatedMlp& mlp) {
  const auto bytes = [](const QuantMatrix& w) {
    const WeightView view = view_of(w);
    return Bytes{view.codes, view.scales, view.biases};
  };
  return {bytes(mlp.gate), bytes(mlp.up), bytes(mlp.down)};
}

// Experts of a layer are stacked in one tensor, so they are packed alike.
bool are_alike(const QuantMatrix& a, const QuantMatrix& b) {
  return a.format == b.format && a.bits == b.bits && a.group == b.group && a.dtype == b.dtype &&
         a.n_out == b.n_out && a.n_in == b.n_in;
}

}  // namespace

size_t moe_experts_cuda_scratch_bytes(const MoeSizes& sizes) {
  const auto places = static_cast<size_t>(sizes.rows * sizes.experts_per_row);
  const auto rows = static_cast<size_t>(sizes.rows), width = static_cast<size_t>(sizes.width);
  const size_t plain = (places + rows) * width * 2 +
                       (places + static_cast<size_t>(sizes.experts) + 1) * 4 +
                       4 * DeviceArena::kAlign;
  return std::max(plain, experts_few_scratch_bytes(sizes));
}

void moe_experts_cuda(const MoeExperts& op, CudaContext& context) {
  if (takes_experts_few(op)) return experts_few_cuda(op, context);
  const DeviceArena::Scope scope(context.scratch);
  const int64_t n_rows = op.x.dim(0), n_chosen = op.ids.dim(1), n_places = n_rows * n_chosen;
  const auto n_experts = static_cast<int64_t>(op.experts.size());
  const Lists lists{context.scratch.take<int32_t>(static_cast<size_t>(n_experts) + 1),
                    context.scratch.take<int32_t>(static_cast<size_t>(n_places))};
  launch_kernel(context, sm80_expert_lists, grid_of(context, n_experts), kListThreads, 0,
                i32_data(op.ids), n_places, static_cast<int>(n_experts), lists);

  if (takes_experts_many(op)) return experts_many_cuda(op, {lists.first, lists.order}, context);

  std::vector<ExpertBytes> bytes;
  for (const GatedMlp& mlp : op.experts) {
    const GatedMlp& first = op.experts[0];
    ROOST_CHECK(are_alike(mlp.gate, first.gate) && are_alike(mlp.up, first.up) &&
                are_alike(mlp.down, first.down));
    bytes.push_back(bytes_of(mlp));
  }
  if (op.shared != nullptr) bytes.push_back(bytes_of(*op.shared));
  const ExpertBytes* experts = context.push(std::span<const ExpertBytes>(bytes));

  const auto run = [&](const GatedMlp& mlp, ExpertCall call, int64_t n_inner) {
    call.gate = view_of(mlp.gate);
    call.up = view_of(mlp.up);
    call.down = view_of(mlp.down);
    call.x = bf16_data(op.x);
    call.y = bf16_data(op.y);
    call.inner = context.scratch.take<uint16_t>(static_cast<size_t>(n_inner * mlp.gate.n_out));
    call.n_chosen = n_chosen;
    call.n_slots = op.y.dim(1);
    launch<false>(call, mlp.gate.n_out, context);
    launch<true>(call, mlp.down.n_out, context);
  };
  run(op.experts[0], {.experts = experts, .n_experts = n_experts, .lists = lists}, n_places);
  if (op.shared == nullptr) return;
  run(*op.shared,
      {.experts = experts + n_experts,
       .n_experts = 1,
       .n_all = n_rows,
       .in_quarters = has_quarters(op.shared->down)},
      n_rows);
}

}  // namespace roost
