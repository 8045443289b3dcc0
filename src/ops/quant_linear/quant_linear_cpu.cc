// The CPU's quant_linear: input rows are brought into kernel form once, then tiles of outputs are
// shared out among the threads.
#include <algorithm>

#include "ops/quant_linear/product_cpu.h"
#include "ops/quant_linear/quant_linear.h"

namespace roost {
namespace {

struct Tiling {
  int64_t n_out_tiles[QuantLinear::kPartsMax];
  int64_t n_row_tiles;
};

struct Item {
  int part;
  int64_t out_begin, n_out, row_begin, n_rows;
};

Item item_at(const QuantLinear& op, const Tiling& tiling, int64_t i) {
  const int64_t row_tile = i % tiling.n_row_tiles;
  int64_t out_tile = i / tiling.n_row_tiles;
  int part = 0;
  while (out_tile >= tiling.n_out_tiles[part]) out_tile -= tiling.n_out_tiles[part++];
  const int64_t out_begin = out_tile * kTileOutputs, row_begin = row_tile * kTileRows;
  return {part, out_begin,
          std::min(kTileOutputs, op.parts[static_cast<size_t>(part)].w->n_out - out_begin),
          row_begin, std::min(kTileRows, op.x.dim(0) - row_begin)};
}

void store(const float* values, int64_t stride, const Item& item, const Tensor& y) {
  const int64_t n_out = y.dim(1);
  for (int64_t r = 0; r < item.n_rows; ++r) {
    const float* from = values + r * stride;
    const int64_t to = (item.row_begin + r) * n_out + item.out_begin;
    if (y.dtype == DType::kF32) {
      std::copy_n(from, item.n_out, y.as<float>() + to);
    } else {
      round_values(from, item.n_out, y.as<uint16_t>() + to);
    }
  }
}

// Every distinct form among the parts' matrices once; form_of[p] says which is part p's.
struct Forms {
  ProductRows rows[QuantLinear::kPartsMax];
  int n = 0;
  int form_of[QuantLinear::kPartsMax] = {};
};

Forms make_forms(const QuantLinear& op, CpuContext& context) {
  Forms forms;
  for (int p = 0; p < op.n_parts; ++p) {
    const QuantMatrix& w = *op.parts[static_cast<size_t>(p)].w;
    int f = 0;
    while (f < forms.n && !forms.rows[f].fits(w)) ++f;
    if (f == forms.n) forms.rows[forms.n++] = take_product_rows(w, op.x.dim(0), context.workspace);
    forms.form_of[p] = f;
  }
  const uint16_t* x = op.x.as<uint16_t>();
  const int64_t n_in = op.x.dim(1);
  context.pool.parallel_for(op.x.dim(0), [&](int64_t row) {
    for (int f = 0; f < forms.n; ++f) fill_product_row(x + row * n_in, forms.rows[f], row);
  });
  return forms;
}

}  // namespace

size_t quant_linear_workspace_bytes(int64_t n_in_max, int64_t rows_max, int n_threads) {
  const size_t per_thread = static_cast<size_t>(2 * kTileRows * kTileOutputs) * sizeof(float) +
                            product_scratch_bytes(n_in_max);
  return QuantLinear::kPartsMax * product_rows_bytes(n_in_max, rows_max) +
         static_cast<size_t>(n_threads) * (per_thread + 3 * Arena::kAlign);
}

void quant_linear_cpu(const QuantLinear& op, CpuContext& context) {
  check(op);
  const Arena::Scope scope(context.workspace);
  const Forms forms = make_forms(op, context);

  const bool is_pair = op.epilogue == Epilogue::kSwiGlu;
  const int n_tiled_parts = is_pair ? 1 : op.n_parts;
  Tiling tiling{};
  tiling.n_row_tiles = div_ceil(op.x.dim(0), kTileRows);
  int64_t n_items = 0;
  for (int p = 0; p < n_tiled_parts; ++p) {
    tiling.n_out_tiles[p] = div_ceil(op.parts[static_cast<size_t>(p)].w->n_out, kTileOutputs);
    n_items += tiling.n_out_tiles[p] * tiling.n_row_tiles;
  }

  const size_t n_threads = static_cast<size_t>(context.pool.n_threads());
  const size_t tile_values = static_cast<size_t>(kTileRows * kTileOutputs);
  const size_t scratch_bytes =
      (product_scratch_bytes(op.x.dim(1)) + Arena::kAlign - 1) / Arena::kAlign * Arena::kAlign;
  float* tiles = context.workspace.span<float>(n_threads * 2 * tile_values).data();
  std::byte* scratch = context.workspace.span<std::byte>(n_threads * scratch_bytes).data();

  context.pool.parallel_for_with_thread(n_items, [&](int64_t i, int thread) {
    const Item item = item_at(op, tiling, i);
    float* values = tiles + static_cast<size_t>(thread) * 2 * tile_values;
    std::byte* own_scratch = scratch + static_cast<size_t>(thread) * scratch_bytes;
    const auto multiply = [&](int part, float* to) {
      const ProductRows rows = rows_from(forms.rows[forms.form_of[part]], item.row_begin);
      product_tile(*op.parts[static_cast<size_t>(part)].w, item.out_begin, item.n_out, rows,
                   nullptr, item.n_rows, to, kTileOutputs, own_scratch);
    };
    multiply(item.part, values);
    if (is_pair) {
      float* up = values + tile_values;
      multiply(1, up);
      for (int64_t r = 0; r < item.n_rows; ++r) {
        float* gate = values + r * kTileOutputs;
        swiglu_values(gate, up + r * kTileOutputs, item.n_out, gate);
      }
    }
    store(values, kTileOutputs, item, op.parts[static_cast<size_t>(item.part)].y);
  });
}

}  // namespace roost
