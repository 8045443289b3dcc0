// The CPU's moe_experts: rows are sorted by expert, so that each expert's weights are read once;
// its rows pass over one tile of them after another.
#include <algorithm>

#include "ops/moe_experts/moe_experts.h"
#include "ops/quant_linear/product_cpu.h"

namespace roost {
namespace {

// Of matrices with few inputs more outputs make a tile.
constexpr int64_t kTileInputs = 2048, kWideTileOutputs = 128;

int64_t tile_outputs(const QuantMatrix& w) {
  return w.n_in * kWideTileOutputs <= kTileInputs * kTileOutputs ? kWideTileOutputs : kTileOutputs;
}

// A pair is one row at one of its experts; the shared expert is one more expert with every row.
struct Group {
  const GatedMlp* mlp;
  int64_t first_pair, n_pairs;  // in the sorted order
};

struct Plan {
  std::span<Group> groups;      // the shared expert, whose rows are the most; those that have rows
  std::span<int32_t> rows;      // [pairs] row of x of each sorted pair
  std::span<int32_t> slots;     // [pairs] row·slots + slot: where the pair's output goes
  std::span<int32_t> in_order;  // [pairs] 0, 1, 2, …: ids of the hidden rows
  int64_t n_groups = 0;
};

Plan sort_by_expert(const MoeExperts& op, Arena& arena) {
  const int64_t n_rows = op.x.dim(0), n_experts = static_cast<int64_t>(op.experts.size()),
                k = op.ids.dim(1);
  const int64_t n_slots = op.y.dim(1), n_pairs = n_rows * n_slots;
  Plan plan;
  plan.groups = arena.span<Group>(static_cast<size_t>(n_experts + 1));
  plan.rows = arena.span<int32_t>(static_cast<size_t>(n_pairs));
  plan.slots = arena.span<int32_t>(static_cast<size_t>(n_pairs));
  plan.in_order = arena.span<int32_t>(static_cast<size_t>(n_pairs));
  const std::span<int32_t> next = arena.span<int32_t>(static_cast<size_t>(n_experts + 1));

  std::fill(next.begin(), next.end(), 0);
  const int32_t* ids = op.ids.as<int32_t>();
  for (int64_t i = 0; i < n_rows * k; ++i) ++next[static_cast<size_t>(ids[i])];
  int32_t first = 0;
  if (op.shared != nullptr) {
    plan.groups[static_cast<size_t>(plan.n_groups++)] = {op.shared, 0, n_rows};
    for (; first < n_rows; ++first) {
      plan.rows[static_cast<size_t>(first)] = first;
      plan.slots[static_cast<size_t>(first)] = static_cast<int32_t>(first * n_slots + k);
    }
  }
  for (int64_t e = 0; e < n_experts; ++e) {
    const int32_t n = next[static_cast<size_t>(e)];
    if (n > 0)
      plan.groups[static_cast<size_t>(plan.n_groups++)] = {&op.experts[static_cast<size_t>(e)],
                                                           first, n};
    next[static_cast<size_t>(e)] = first;
    first += n;
  }
  for (int64_t row = 0; row < n_rows; ++row) {
    for (int64_t s = 0; s < k; ++s) {
      const auto at = static_cast<size_t>(next[static_cast<size_t>(ids[row * k + s])]++);
      plan.rows[at] = static_cast<int32_t>(row);
      plan.slots[at] = static_cast<int32_t>(row * n_slots + s);
    }
  }
  for (int64_t i = 0; i < n_pairs; ++i)
    plan.in_order[static_cast<size_t>(i)] = static_cast<int32_t>(i);
  return plan;
}

// One tile of outputs of one expert over some of its rows.
struct Item {
  int32_t group;
  int32_t out_begin, n_out;
  int32_t pair_begin, n_pairs;
};

const QuantMatrix& matrix_of(const Group& group, bool is_down) {
  return is_down ? group.mlp->down : group.mlp->gate;
}

// Rows of a tile of n_outputs outputs: as many as the thread's tiles of values have room for.
int64_t tile_rows(int64_t n_outputs) {
  return std::min(kTileRows, kTileRows * kTileOutputs / n_outputs);
}

int64_t n_tiles(const Plan& plan, bool is_down, int64_t n_outputs) {
  int64_t n = 0;
  for (const Group& group : plan.groups.first(static_cast<size_t>(plan.n_groups)))
    n += div_ceil(matrix_of(group, is_down).n_out, n_outputs) *
         div_ceil(group.n_pairs, tile_rows(n_outputs));
  return n;
}

std::span<Item> make_items(const Plan& plan, bool is_down, Arena& arena) {
  const int64_t n_outputs = tile_outputs(matrix_of(plan.groups[0], is_down));
  const std::span<Item> items =
      arena.span<Item>(static_cast<size_t>(n_tiles(plan, is_down, n_outputs)));
  size_t i = 0;
  for (int64_t g = 0; g < plan.n_groups; ++g) {
    const Group& group = plan.groups[static_cast<size_t>(g)];
    const int64_t n_out = matrix_of(group, is_down).n_out;
    for (int64_t out = 0; out < n_out; out += n_outputs) {
      for (int64_t p = 0; p < group.n_pairs; p += tile_rows(n_outputs)) {
        items[i++] = {static_cast<int32_t>(g), static_cast<int32_t>(out),
                      static_cast<int32_t>(std::min(n_outputs, n_out - out)),
                      static_cast<int32_t>(group.first_pair + p),
                      static_cast<int32_t>(std::min(tile_rows(n_outputs), group.n_pairs - p))};
      }
    }
  }
  return items;
}

// Input rows in every form that the matrices want: all routed experts are alike, but gate and up
// may differ in width, and so may the shared expert.
struct Forms {
  ProductRows rows[4];
  int n = 0;

  void add(const QuantMatrix& w, int64_t n_rows, Arena& arena) {
    if (find(w) == n) rows[n++] = take_product_rows(w, n_rows, arena);
  }
  int find(const QuantMatrix& w) const {
    int f = 0;
    while (f < n && !rows[f].fits(w)) ++f;
    return f;
  }
  const ProductRows& of(const QuantMatrix& w) const { return rows[find(w)]; }
};

Forms take_forms(const MoeExperts& op, bool is_down, int64_t n_rows, Arena& arena) {
  Forms forms;
  for (const GatedMlp* mlp : {&op.experts[0], op.shared}) {
    if (mlp == nullptr) continue;
    forms.add(is_down ? mlp->down : mlp->gate, n_rows, arena);
    if (!is_down) forms.add(mlp->up, n_rows, arena);
  }
  return forms;
}

struct ThreadScratch {
  float* tiles;  // two tiles a thread
  std::byte* product;
  size_t product_bytes;
  float* tile(int thread, int which) const {
    return tiles + (static_cast<size_t>(thread) * 2 + static_cast<size_t>(which)) * kTileRows *
                       kTileOutputs;
  }
  std::byte* product_of(int thread) const {
    return product + static_cast<size_t>(thread) * product_bytes;
  }
};

ThreadScratch take_thread_scratch(int64_t n_in_max, CpuContext& context) {
  const size_t n_threads = static_cast<size_t>(context.pool.n_threads());
  ThreadScratch scratch{};
  scratch.tiles = context.workspace.span<float>(n_threads * 2 * kTileRows * kTileOutputs).data();
  scratch.product_bytes =
      (product_scratch_bytes(n_in_max) + Arena::kAlign - 1) / Arena::kAlign * Arena::kAlign;
  scratch.product = context.workspace.span<std::byte>(n_threads * scratch.product_bytes).data();
  return scratch;
}

// hidden[pair] = r(silu(x·Gᵀ) ⊙ (x·Uᵀ)) for every sorted pair.
void gate_up(const Plan& plan, std::span<const Item> items, const Forms& forms,
             const ThreadScratch& scratch, uint16_t* hidden, int64_t hidden_stride,
             ThreadPool& pool) {
  pool.parallel_for_with_thread(static_cast<int64_t>(items.size()), [&](int64_t i, int thread) {
    const Item& item = items[static_cast<size_t>(i)];
    const GatedMlp& mlp = *plan.groups[static_cast<size_t>(item.group)].mlp;
    const int64_t n_out = item.n_out;
    const int32_t* rows = plan.rows.data() + item.pair_begin;
    float *gate = scratch.tile(thread, 0), *up = scratch.tile(thread, 1);
    product_tile(mlp.gate, item.out_begin, n_out, forms.of(mlp.gate), rows, item.n_pairs, gate,
                 n_out, scratch.product_of(thread));
    product_tile(mlp.up, item.out_begin, n_out, forms.of(mlp.up), rows, item.n_pairs, up, n_out,
                 scratch.product_of(thread));
    for (int64_t p = 0; p < item.n_pairs; ++p) {
      uint16_t* out = hidden + (item.pair_begin + p) * hidden_stride + item.out_begin;
      float* values = gate + p * n_out;
      swiglu_values(values, up + p * n_out, n_out, values);
      round_values(values, n_out, out);
    }
  });
}

// y[slot of the pair] = r(hidden[pair]·Dᵀ).
void down(const Plan& plan, std::span<const Item> items, const Forms& forms,
          const ThreadScratch& scratch, const Tensor& y, ThreadPool& pool) {
  const int64_t n_hidden = y.dim(2);
  pool.parallel_for_with_thread(static_cast<int64_t>(items.size()), [&](int64_t i, int thread) {
    const Item& item = items[static_cast<size_t>(i)];
    const GatedMlp& mlp = *plan.groups[static_cast<size_t>(item.group)].mlp;
    const int64_t n_out = item.n_out;
    float* tile = scratch.tile(thread, 0);
    product_tile(mlp.down, item.out_begin, n_out, forms.of(mlp.down),
                 plan.in_order.data() + item.pair_begin, item.n_pairs, tile, n_out,
                 scratch.product_of(thread));
    for (int64_t p = 0; p < item.n_pairs; ++p) {
      const int64_t slot = plan.slots[static_cast<size_t>(item.pair_begin + p)];
      uint16_t* out = y.as<uint16_t>() + slot * n_hidden + item.out_begin;
      round_values(tile + p * n_out, n_out, out);
    }
  });
}

}  // namespace

size_t moe_experts_workspace_bytes(const MoeSizes& sizes, int n_threads) {
  const int64_t n_pairs = sizes.rows * (sizes.experts_per_row + 1);
  const int64_t n_in_max = std::max(sizes.hidden, sizes.width);
  const int64_t tiles_of_pairs = n_pairs / kTileRows + sizes.experts + 1;
  const int64_t n_items_max = (n_in_max / kTileOutputs + 1) * std::min(tiles_of_pairs, n_pairs);
  return static_cast<size_t>(sizes.experts + 1) * (sizeof(Group) + 4) +
         static_cast<size_t>(n_pairs) * 3 * 4 +
         static_cast<size_t>(2 * n_items_max) * sizeof(Item) +
         4 * product_rows_bytes(sizes.hidden, sizes.rows) +
         2 * product_rows_bytes(sizes.width, n_pairs) +
         static_cast<size_t>(n_pairs * sizes.width) * 2 +
         static_cast<size_t>(n_threads) * (2 * kTileRows * kTileOutputs * sizeof(float) +
                                           product_scratch_bytes(n_in_max) + Arena::kAlign) +
         24 * Arena::kAlign;
}

void moe_experts_cpu(const MoeExperts& op, CpuContext& context) {
  check(op);
  const Arena::Scope scope(context.workspace);
  Arena& arena = context.workspace;
  const Plan plan = sort_by_expert(op, arena);
  const int64_t n_rows = op.x.dim(0), n_hidden = op.x.dim(1);
  const int64_t n_pairs = n_rows * op.y.dim(1);
  const int64_t routed_width = op.experts[0].gate.n_out;
  const int64_t width = std::max(routed_width, op.shared ? op.shared->gate.n_out : 0);
  const ThreadScratch scratch = take_thread_scratch(std::max(n_hidden, width), context);

  const Forms inputs = take_forms(op, false, n_rows, arena);
  const uint16_t* x = op.x.as<uint16_t>();
  context.pool.parallel_for(n_rows, [&](int64_t row) {
    for (int f = 0; f < inputs.n; ++f) fill_product_row(x + row * n_hidden, inputs.rows[f], row);
  });

  uint16_t* hidden =
      arena.span<uint16_t>(static_cast<size_t>(n_pairs * width)).data();  // [pairs, width]
  gate_up(plan, make_items(plan, false, arena), inputs, scratch, hidden, width, context.pool);

  const Forms hiddens = take_forms(op, true, n_pairs, arena);
  const int64_t n_shared_pairs = op.shared ? n_rows : 0;
  context.pool.parallel_for(n_pairs, [&](int64_t pair) {
    const QuantMatrix& w = pair < n_shared_pairs ? op.shared->down : op.experts[0].down;
    fill_product_row(hidden + pair * width, hiddens.of(w), pair);
  });
  down(plan, make_items(plan, true, arena), hiddens, scratch, op.y, context.pool);
}

}  // namespace roost
