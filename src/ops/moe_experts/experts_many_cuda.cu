// The CUDA kernels of moe_experts for many rows over bricks, on the warpgroup matrix unit: a block
// takes one tile of one expert's weight rows through all rows that chose the expert.
#include "ops/moe_experts/experts_many.cuh"

#include "ops/moe_experts/experts_few.cuh"
#include "ops/quant_linear/bricks_many.cuh"
#include "ops/quant_linear/bricks_tile.cuh"

namespace roost {
namespace {

using namespace cuda;

struct ManyCall {
  ExpertLists lists;
  const uint8_t *gate, *up, *down;  // of expert 0
  int64_t distance;                 // from one expert to the next
  const uint16_t* x;                // [T, h]
  uint16_t* inner;                  // [places in the order of the lists, mi]
  uint16_t* y;                      // [T, n_slots, h]
  int64_t n_chosen, n_slots, hidden, width, n_tiles, first_item;
};

template <int kTokens, bool kDown>
__global__ void __launch_bounds__(kTileThreads, kTokens == 64 ? 2 : 1)
    sm90_bricks_experts(ManyCall c) {
  wait_for_inputs();
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  extern __shared__ uint8_t dynamic_shared[];
  using Tile = BrickTile<4, kTokens, false>;
  Tile tile(dynamic_shared);
  const int group = threadIdx.x / 128;
  const int64_t item = c.first_item + blockIdx.x, e = item / c.n_tiles, row_tile = item % c.n_tiles;
  const int64_t n_in = kDown ? c.width : c.hidden, n_out = kDown ? c.hidden : c.width;
  const int64_t mine = kDown ? row_tile * 2 + group : row_tile;
  const uint8_t* matrix = kDown ? c.down : group == 0 ? c.gate : c.up;
  const int n_across = int(n_in / 64);
  const uint8_t* bricks =
      matrix + e * c.distance + min(mine, (n_out + 63) / 64 - 1) * n_across * brick_bytes_of(4);
  const int32_t end = c.lists.first[e + 1];
  for (int32_t begin = c.lists.first[e]; begin < end; begin += kTokens) {
    const int n_tokens = min(kTokens, end - begin);
    typename Tile::Sums sums;
    tile.run(
        bricks, n_across, n_tokens,
        [&](int token) {
          return kDown ? c.inner + (begin + token) * c.width
                       : c.x + c.lists.order[begin + token] / c.n_chosen * c.hidden;
        },
        sums);
    if constexpr (!kDown) {
      tile.join_pair(sums);
      if (group == 1) continue;
    }
    tile.for_sums(sums, [&](int token, int row, float value) {
      const int64_t r = mine * 64 + row;
      if (token >= n_tokens || r >= n_out) return;
      if constexpr (kDown) {
        const int64_t place = c.lists.order[begin + token];
        c.y[(place / c.n_chosen * c.n_slots + place % c.n_chosen) * c.hidden + r] = bf16_of(value);
      } else {
        c.inner[(begin + token) * c.width + r] = bf16_of(value);
      }
    });
  }
#endif
}

template <int kTokens, bool kDown>
void launch(ManyCall call, int64_t n_experts, CudaContext& context) {
  const auto kernel = sm90_bricks_experts<kTokens, kDown>;
  constexpr size_t kBytes = tile_shared_bytes<4, kTokens>();
  check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                             static_cast<int>(kBytes)));
  const int64_t n_out = kDown ? call.hidden : call.width, rows_of_block = kDown ? 128 : 64;
  call.n_tiles = (n_out + rows_of_block - 1) / rows_of_block;
  while (call.first_item < n_experts * call.n_tiles) {
    const unsigned n_blocks = grid_of(context, n_experts * call.n_tiles - call.first_item);
    launch_kernel(context, kernel, n_blocks, kTileThreads, kBytes, call);
    call.first_item += n_blocks;
  }
}

void run_shared(const MoeExperts& op, CudaContext& context) {
  const int64_t n_rows = op.x.dim(0), n_slots = op.y.dim(1), hidden = op.y.dim(2);
  const int64_t width = op.shared->gate.n_out;
  const Tensor inner{
      .data = context.scratch.take<std::byte>(static_cast<size_t>(n_rows * width) * 2),
      .dtype = DType::kBF16,
      .shape = {n_rows, width}};
  bricks_many_cuda(
      {.x = op.x, .w = &op.shared->gate, .up = &op.shared->up, .y = inner, .y_stride = width},
      context);
  // The last slot of every row.
  Tensor y{.data = op.y.data + (n_slots - 1) * hidden * 2, .dtype = DType::kBF16, .shape = {}};
  bricks_many_cuda({.x = inner,
                    .w = &op.shared->down,
                    .y = y,
                    .y_stride = n_slots * hidden,
                    .in_quarters = width % (4 * kBrickInputs) == 0},
                   context);
}

}  // namespace

bool takes_experts_many(const MoeExperts& op) {
  if (!has_warpgroup_products() || !has_equal_bricks(op)) return false;
  const GatedMlp& first = op.experts[0];
  const auto takes = [](const GatedMlp& mlp, int64_t chain) {
    return mlp.gate.n_in % (2 * kBrickInputs) == 0 && mlp.down.n_in % (chain * kBrickInputs) == 0;
  };
  return first.gate.bits == 4 && takes(first, 2) && (op.shared == nullptr || takes(*op.shared, 8));
}

void experts_many_cuda(const MoeExperts& op, const ExpertLists& lists, CudaContext& context) {
  const GatedMlp& first = op.experts[0];
  const auto n_experts = static_cast<int64_t>(op.experts.size());
  const int64_t n_places = op.ids.n_elements();
  ManyCall call{.lists = lists};
  call.gate = bricks_of(first.gate);
  call.up = bricks_of(first.up);
  call.down = bricks_of(first.down);
  call.distance = n_experts > 1 ? op.experts[1].gate.codes - first.gate.codes : 0;
  call.x = bf16_data(op.x);
  call.y = bf16_data(op.y);
  call.n_chosen = op.ids.dim(1);
  call.n_slots = op.y.dim(1);
  call.hidden = first.gate.n_in;
  call.width = first.gate.n_out;
  call.inner = context.scratch.take<uint16_t>(static_cast<size_t>(n_places * call.width));
  // Tokens of the wide tile pay only where an expert fills it.
  if (n_places >= 96 * n_experts) {
    launch<128, false>(call, n_experts, context);
    launch<128, true>(call, n_experts, context);
  } else {
    launch<64, false>(call, n_experts, context);
    launch<64, true>(call, n_experts, context);
  }
  if (op.shared != nullptr) run_shared(op, context);
}

}  // namespace roost
