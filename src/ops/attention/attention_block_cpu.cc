// Kernels of attention_block_cpu.h, one source for every instruction set.
// long: the passes over a tile share its panels, for pages of values and of codes
//
// Lanes are queries. Keys and values are widened to f32 a few at a time and broadcast one by one,
// so that a score is one chain of fused multiply-adds over the dims, an output one chain over the
// keys, and maxima and sums need no other lane: a query's arithmetic cannot depend on its company.
// Keys behind a row's position are masked: of probability zero, and skipped in the chains, so that
// not even a NaN in them is felt.
#include "ops/attention/attention_block_cpu.h"

#include <limits>
#include <utility>

// Arrays of vectors need types of known size; NEON serves these machines.
#ifdef __aarch64__
#define HWY_DISABLED_TARGETS (HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128)
#endif
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/attention/attention_block_cpu.cc"
#include <hwy/cache_control.h>
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "device/cpu/simd.h"
#include "ops/simd_math.h"

HWY_BEFORE_NAMESPACE();
namespace roost {
namespace HWY_NAMESPACE {
namespace {
namespace hn = hwy::HWY_NAMESPACE;

using Lanes = hn::CappedTag<float, 16>;
using V = hn::Vec<Lanes>;

// Accumulators of a step: enough chains to hide the latency, few enough for the registers.
constexpr size_t kChains = HWY_MAX_BYTES >= 64 ? 16 : 8;
constexpr size_t kTile = kPageTokens;

template <size_t... kIndex, class Body>
HWY_INLINE void unroll(std::index_sequence<kIndex...>, const Body& body) {
  (body(std::integral_constant<size_t, kIndex>()), ...);
}
template <size_t kCount, class Body>
HWY_INLINE void unroll(const Body& body) {
  unroll(std::make_index_sequence<kCount>(), body);
}

// Vectors that hold n lanes.
size_t n_vectors(size_t n) {
  return (n + hn::Lanes(Lanes()) - 1) / hn::Lanes(Lanes());
}

// Calls body(number of vectors, first lane) for each panel of n_queries lanes.
template <class Body>
HWY_INLINE void for_panels(size_t n_queries, const Body& body) {
  const size_t n = n_vectors(n_queries), step = hn::Lanes(Lanes());
  size_t v = 0;
  for (; v + 2 <= n; v += 2) body(std::integral_constant<size_t, 2>(), v * step);
  if (v < n) body(std::integral_constant<size_t, 1>(), v * step);
}

// Where column `lane` of a matrix of n_rows starts, and the distance between its rows.
struct Column {
  size_t offset, stride;
};
Column column_of(size_t lane, size_t n_rows, size_t n_queries) {
  const size_t step = hn::Lanes(Lanes()), first = lane / (2 * step) * (2 * step);
  const size_t width = HWY_MIN(2 * step, n_vectors(n_queries) * step - first);
  return {first * n_rows + lane - first, width};
}

V rounded_to_bf16(Lanes d, V v) {
  const hn::RebindToUnsigned<Lanes> du;
  const auto bits = hn::BitCast(du, v);
  const auto odd = hn::And(hn::ShiftRight<16>(bits), hn::Set(du, 1u));
  const auto up = hn::Add(bits, hn::Add(odd, hn::Set(du, 0x7FFFu)));
  const V rounded = hn::BitCast(d, hn::And(up, hn::Set(du, 0xFFFF0000u)));
  return hn::IfThenElse(hn::Eq(v, v), rounded, v);  // NaN stays NaN
}

// kKeys scores of kVectors vectors of queries: one chain over the dims each. On the way the values
// of the keys are fetched from memory, kKeys·dim of them from `ahead` on: they are needed next.
template <size_t kKeys, size_t kVectors>
void score_keys(size_t dim, const float* HWY_RESTRICT keys, const float* HWY_RESTRICT queries,
                const float* HWY_RESTRICT factors, const uint16_t* ahead,
                float* HWY_RESTRICT scores) {
  const Lanes d;
  const size_t n = hn::Lanes(d);
  V sums[kKeys][kVectors];
  unroll<kKeys>([&](auto j) HWY_ATTR {
    unroll<kVectors>([&](auto v) HWY_ATTR { sums[j][v] = hn::Zero(d); });
  });
  for (size_t i = 0; i < dim; ++i) {
    hwy::Prefetch(ahead + i * kKeys);
    V query[kVectors];
    unroll<kVectors>([&](auto v)
                         HWY_ATTR { query[v] = hn::LoadU(d, queries + (i * kVectors + v) * n); });
    unroll<kKeys>([&](auto j) HWY_ATTR {
      const V key = hn::Set(d, keys[j * kKeyStride + i]);
      unroll<kVectors>([&](auto v)
                           HWY_ATTR { sums[j][v] = hn::MulAdd(key, query[v], sums[j][v]); });
    });
  }
  unroll<kKeys>([&](auto j) HWY_ATTR {
    unroll<kVectors>([&](auto v) HWY_ATTR {
      hn::StoreU(hn::Mul(sums[j][v], hn::Set(d, factors[j])), d, scores + (j * kVectors + v) * n);
    });
  });
}

// n bf16 as f32; n a multiple of every vector.
HWY_INLINE void widen(const uint16_t* HWY_RESTRICT from, size_t n, float* HWY_RESTRICT to) {
  const Lanes d;
  for (size_t i = 0; i < n; i += hn::Lanes(d)) hn::StoreU(load_bf16(d, from + i), d, to + i);
}

// n codes as f32.
HWY_INLINE void widen(const int8_t* HWY_RESTRICT from, size_t n, float* HWY_RESTRICT to) {
  const Lanes d;
  const hn::Rebind<int8_t, Lanes> d8;
  const hn::Rebind<int32_t, Lanes> d32;
  for (size_t i = 0; i < n; i += hn::Lanes(d))
    hn::StoreU(hn::ConvertTo(d, hn::PromoteTo(d32, hn::LoadU(d8, from + i))), d, to + i);
}

// A tile: keys [begin, begin + n_keys) of the sequence; all queries see the first n_common.
struct Tile {
  size_t begin, n_keys, n_common;
  const uint16_t *keys, *values;           // [64][D] of the page; with codes only for prefetching
  const uint16_t* next_keys;               // of the next tile
  const int8_t *key_codes, *value_codes;   // [64][D] and [D][64]; null: there are none
  const float *key_scales, *value_scales;  // [64]
};

void score_tile(const AttentionBlock& block, const Tile& tile, const AttentionScratch& scratch) {
  const auto dim = static_cast<size_t>(block.op->q.dim(2));
  const auto n_queries = static_cast<size_t>(block.n_queries());
  const float factor = block.op->scale * 1.44269504088896f;
  float factors[kTile];
  for (size_t t = 0; t < kTile; ++t)
    factors[t] = tile.key_codes && t < tile.n_keys ? factor * tile.key_scales[t] : factor;
  for (size_t first = 0; first < tile.n_keys; first += kKeyStep) {
    const size_t n = HWY_MIN(static_cast<size_t>(kKeyStep), tile.n_keys - first);
    for (size_t j = 0; j < n; ++j) {
      if (tile.key_codes) {
        widen(tile.key_codes + (first + j) * dim, dim, scratch.keys + j * kKeyStride);
      } else {
        widen(tile.keys + (first + j) * dim, dim, scratch.keys + j * kKeyStride);
      }
    }
    for_panels(n_queries, [&](auto vectors, size_t lane) HWY_ATTR {
      constexpr size_t kVectors = decltype(vectors)::value, kKeys = kChains / kVectors;
      const size_t width = kVectors * hn::Lanes(Lanes());
      // The last step may run over absent keys: their scores are not looked at.
      for (size_t j = 0; j < n; j += kKeys)
        score_keys<kKeys, kVectors>(
            dim, scratch.keys + j * kKeyStride, scratch.queries + lane * dim, factors + first + j,
            tile.values + (first + j) * dim, scratch.scores + lane * kTile + (first + j) * width);
    });
  }
}

// Scores become probabilities; maximum and sum move on; `factors` says what the outputs so far are
// to be multiplied with. One vector of queries: scores of a key are `stride` apart.
void soften(const Tile& tile, size_t lane, float* scores, size_t stride,
            const AttentionScratch& scratch, const AttentionSums& sums) {
  const Lanes d;
  const auto at = [&](size_t t) { return scores + t * stride; };
  const auto sees = [&](size_t t) HWY_ATTR {
    return hn::Le(hn::Set(d, static_cast<float>(tile.begin + t)),
                  hn::LoadU(d, scratch.positions + lane));
  };
  const V old_maximum = hn::LoadU(d, sums.maximum + lane);
  V maximum = old_maximum;
  for (size_t t = 0; t < tile.n_common; ++t) maximum = hn::Max(maximum, hn::LoadU(d, at(t)));
  for (size_t t = tile.n_common; t < tile.n_keys; ++t)
    maximum = hn::IfThenElse(sees(t), hn::Max(maximum, hn::LoadU(d, at(t))), maximum);
  // Of a query that sees nothing of this tile nothing changes, for exp2(0) is 1; if it has seen
  // nothing of the split, its sums become NaN, and merge_sums leaves them out.
  const V factor = exp2(d, hn::Sub(old_maximum, maximum));
  V sum = hn::Mul(hn::LoadU(d, sums.sum + lane), factor);
  const auto numerator = [&](size_t t)
                             HWY_ATTR { return exp2(d, hn::Sub(hn::LoadU(d, at(t)), maximum)); };
  // What the values are weighed with: codes with their scale in it.
  const auto weight = [&](size_t t, V e, V p) HWY_ATTR {
    if (tile.value_codes == nullptr) return p;
    return rounded_to_bf16(d, hn::Mul(e, hn::Set(d, tile.value_scales[t])));
  };
  for (size_t t = 0; t < tile.n_common; ++t) {
    const V e = numerator(t), p = rounded_to_bf16(d, e);
    sum = hn::Add(sum, p);
    hn::StoreU(weight(t, e, p), d, at(t));
  }
  for (size_t t = tile.n_common; t < tile.n_keys; ++t) {
    const V e = numerator(t), p = hn::IfThenElseZero(sees(t), rounded_to_bf16(d, e));
    sum = hn::Add(sum, p);
    hn::StoreU(weight(t, e, p), d, at(t));
  }
  hn::StoreU(maximum, d, sums.maximum + lane);
  hn::StoreU(sum, d, sums.sum + lane);
  hn::StoreU(factor, d, scratch.factors + lane);
}

// kDims outputs of kVectors vectors of queries move on by one tile: one chain over the keys each.
// On the way kDims·64 of the next tile's keys are fetched, from `ahead` on.
template <size_t kDims, size_t kVectors>
void add_values(const Tile& tile, const float* HWY_RESTRICT values,
                const float* HWY_RESTRICT probabilities, const float* HWY_RESTRICT factors,
                const float* HWY_RESTRICT positions, const uint16_t* ahead,
                float* HWY_RESTRICT output) {
  const Lanes d;
  const size_t n = hn::Lanes(d);
  V sums[kDims][kVectors];
  unroll<kDims>([&](auto i) HWY_ATTR {
    unroll<kVectors>([&](auto v) HWY_ATTR {
      sums[i][v] =
          hn::Mul(hn::LoadU(d, output + (i * kVectors + v) * n), hn::LoadU(d, factors + v * n));
    });
  });
  for (size_t t = 0; t < tile.n_common; ++t) {
    hwy::Prefetch(ahead + t * kDims);
    V weight[kVectors];
    unroll<kVectors>(
        [&](auto v) HWY_ATTR { weight[v] = hn::LoadU(d, probabilities + (t * kVectors + v) * n); });
    unroll<kDims>([&](auto i) HWY_ATTR {
      const V value = hn::Set(d, values[t * kKeyStep + i]);
      unroll<kVectors>([&](auto v)
                           HWY_ATTR { sums[i][v] = hn::MulAdd(value, weight[v], sums[i][v]); });
    });
  }
  for (size_t t = tile.n_common; t < tile.n_keys; ++t) {
    const V key = hn::Set(d, static_cast<float>(tile.begin + t));
    unroll<kVectors>([&](auto v) HWY_ATTR {
      const auto sees = hn::Le(key, hn::LoadU(d, positions + v * n));
      const V weight = hn::LoadU(d, probabilities + (t * kVectors + v) * n);
      unroll<kDims>([&](auto i) HWY_ATTR {
        const V value = hn::Set(d, values[t * kKeyStep + i]);
        sums[i][v] = hn::IfThenElse(sees, hn::MulAdd(value, weight, sums[i][v]), sums[i][v]);
      });
    });
  }
  unroll<kDims>([&](auto i) HWY_ATTR {
    unroll<kVectors>([&](auto v)
                         HWY_ATTR { hn::StoreU(sums[i][v], d, output + (i * kVectors + v) * n); });
  });
}

void weigh_tile(const AttentionBlock& block, const Tile& tile, const AttentionScratch& scratch,
                const AttentionSums& sums) {
  const auto dim = static_cast<size_t>(block.op->q.dim(2));
  const auto n_queries = static_cast<size_t>(block.n_queries());
  for (size_t first = 0; first < dim; first += kKeyStep) {
    for (size_t t = 0; t < tile.n_keys && tile.value_codes == nullptr; ++t)
      widen(tile.values + t * dim + first, kKeyStep, scratch.values + t * kKeyStep);
    for (size_t i = 0; i < kKeyStep && tile.value_codes != nullptr; ++i) {
      const int8_t* codes = tile.value_codes + (first + i) * kTile;
      for (size_t t = 0; t < tile.n_keys; ++t)
        scratch.values[t * kKeyStep + i] = static_cast<float>(codes[t]);
    }
    for_panels(n_queries, [&](auto vectors, size_t lane) HWY_ATTR {
      constexpr size_t kVectors = decltype(vectors)::value, kDims = kChains / kVectors;
      const size_t width = kVectors * hn::Lanes(Lanes());
      for (size_t i = 0; i < kKeyStep; i += kDims)
        add_values<kDims, kVectors>(tile, scratch.values + i, scratch.scores + lane * kTile,
                                    scratch.factors + lane, scratch.positions + lane,
                                    tile.next_keys + (first + i) * kTile,
                                    sums.output + lane * dim + (first + i) * width);
    });
  }
}

void load_queries(const AttentionBlock& block, const AttentionScratch& scratch) {
  const auto dim = static_cast<size_t>(block.op->q.dim(2));
  const auto n_queries = static_cast<size_t>(block.n_queries());
  const auto heads = static_cast<size_t>(block.heads());
  const size_t n_lanes = n_vectors(n_queries) * hn::Lanes(Lanes());
  const auto n_heads = static_cast<size_t>(block.op->q.dim(1));
  const size_t first_row = static_cast<size_t>(block.span->first_row + block.first);
  for (size_t lane = 0; lane < n_lanes; ++lane) {
    const size_t query = HWY_MIN(lane, n_queries - 1);  // spare lanes repeat the last query
    const size_t row = query / heads;
    const size_t head = static_cast<size_t>(block.kv_head) * heads + query % heads;
    const uint16_t* from = block.op->q.as<uint16_t>() + ((first_row + row) * n_heads + head) * dim;
    const Column column = column_of(lane, dim, n_queries);
    float* to = scratch.queries + column.offset;
    for (size_t i = 0; i < dim; ++i) to[i * column.stride] = f32_from_bf16(from[i]);
    scratch.positions[lane] = static_cast<float>(block.first_position()) + static_cast<float>(row);
  }
}

void sum_keys(const AttentionBlock& block, int64_t split, const AttentionScratch& scratch,
              const AttentionSums& sums) {
  const auto dim = static_cast<size_t>(block.op->q.dim(2));
  const auto n_queries = static_cast<size_t>(block.n_queries());
  const Lanes d;
  const size_t step = hn::Lanes(d), n_lanes = n_vectors(n_queries) * step;
  for (size_t lane = 0; lane < n_lanes; lane += step) {
    hn::StoreU(hn::Set(d, -std::numeric_limits<float>::infinity()), d, sums.maximum + lane);
    hn::StoreU(hn::Zero(d), d, sums.sum + lane);
  }
  for (size_t i = 0; i < dim * n_lanes; i += step) hn::StoreU(hn::Zero(d), d, sums.output + i);
  const auto common_end = static_cast<size_t>(block.first_position()) + 1;
  const auto first = static_cast<size_t>(split * block.split_size());
  const size_t end =
      HWY_MIN(first + static_cast<size_t>(block.split_size()), static_cast<size_t>(block.n_keys()));
  const auto kv_heads = static_cast<size_t>(block.op->k_pages.dim(1));
  // Of the page that holds the token: its tokens of this head.
  const auto place = [&](size_t token) {
    const auto page = static_cast<size_t>(block.span->page_table[token / kTile]);
    return (page * kv_heads + static_cast<size_t>(block.kv_head)) * kTile;
  };
  const Attention& op = *block.op;
  const size_t token_bytes = dim * size_of(op.k_pages.dtype);
  const auto in = [&](const Tensor& pages, size_t token) {
    return pages.data + place(token) * token_bytes;
  };
  for (size_t begin = first; begin < end; begin += kTile) {
    const size_t n_keys = HWY_MIN(kTile, end - begin);
    const size_t n_common = common_end > begin ? HWY_MIN(n_keys, common_end - begin) : 0;
    Tile tile = {
        .begin = begin,
        .n_keys = n_keys,
        .n_common = n_common,
        .keys = reinterpret_cast<uint16_t*>(in(op.k_pages, begin)),
        .values = reinterpret_cast<uint16_t*>(in(op.v_pages, begin)),
        .next_keys = reinterpret_cast<uint16_t*>(in(op.k_pages, HWY_MIN(begin + kTile, end - 1)))};
    if (op.has_codes()) {
      tile.key_codes = reinterpret_cast<int8_t*>(in(op.k_pages, begin));
      tile.value_codes = reinterpret_cast<int8_t*>(in(op.v_pages, begin));
      tile.key_scales = op.k_scales.as<float>() + place(begin);
      tile.value_scales = op.v_scales.as<float>() + place(begin);
    }
    score_tile(block, tile, scratch);
    for (size_t lane = 0; lane < n_lanes; lane += step) {
      const Column column = column_of(lane, kTile, n_queries);
      soften(tile, lane, scratch.scores + column.offset, column.stride, scratch, sums);
    }
    weigh_tile(block, tile, scratch, sums);
  }
}

// total = total·a + sums·b, where a and b bring both to the common maximum. A query that sees
// nothing of the split keeps its total.
void merge_sums(const AttentionBlock& block, int64_t split, const AttentionSums& sums,
                const AttentionScratch& scratch, const AttentionSums& total) {
  const auto dim = static_cast<size_t>(block.op->q.dim(2));
  const auto n_queries = static_cast<size_t>(block.n_queries());
  const Lanes d;
  const size_t step = hn::Lanes(d), n_lanes = n_vectors(n_queries) * step;
  const V first_key = hn::Set(d, static_cast<float>(split * block.split_size()));
  for (size_t lane = 0; lane < n_lanes; lane += step) {
    const auto sees = hn::Le(first_key, hn::LoadU(d, scratch.positions + lane));
    const V mine = split == 0 ? hn::Set(d, -std::numeric_limits<float>::infinity())
                              : hn::LoadU(d, total.maximum + lane);
    const V theirs = hn::LoadU(d, sums.maximum + lane);
    const V maximum = hn::Max(mine, theirs);
    const V a = exp2(d, hn::Sub(mine, maximum)), b = exp2(d, hn::Sub(theirs, maximum));
    const Column column = column_of(lane, dim, n_queries);
    const auto merge = [&](const float* from, float* to) HWY_ATTR {
      const V old = split == 0 ? hn::Zero(d) : hn::LoadU(d, to);
      const V merged = hn::MulAdd(hn::LoadU(d, from), b, hn::Mul(old, a));
      hn::StoreU(hn::IfThenElse(sees, merged, old), d, to);
    };
    hn::StoreU(hn::IfThenElse(sees, maximum, mine), d, total.maximum + lane);
    merge(sums.sum + lane, total.sum + lane);
    for (size_t i = 0; i < dim; ++i) {
      const size_t at = column.offset + i * column.stride;
      merge(sums.output + at, total.output + at);
    }
  }
}

void store_outputs(const AttentionBlock& block, const AttentionScratch& scratch,
                   const AttentionSums& total) {
  const auto dim = static_cast<size_t>(block.op->q.dim(2));
  const auto n_queries = static_cast<size_t>(block.n_queries());
  const auto heads = static_cast<size_t>(block.heads());
  const auto n_heads = static_cast<size_t>(block.op->q.dim(1));
  const size_t first_row = static_cast<size_t>(block.span->first_row + block.first);
  float* o = scratch.keys;  // [D]
  for (size_t query = 0; query < n_queries; ++query) {
    const size_t head = static_cast<size_t>(block.kv_head) * heads + query % heads;
    const size_t at = (first_row + query / heads) * n_heads + head;
    const Column column = column_of(query, dim, n_queries);
    for (size_t i = 0; i < dim; ++i) o[i] = total.output[column.offset + i * column.stride];
    const uint16_t* gates = block.op->q_gate.as<uint16_t>() + (2 * at + 1) * dim;
    uint16_t* out = block.op->out.as<uint16_t>() + at * dim;
    const Lanes d;
    const V sum = hn::Set(d, total.sum[query]);
    for (size_t i = 0; i < dim; i += hn::Lanes(d)) {
      const V value = rounded_to_bf16(d, hn::Div(hn::LoadU(d, o + i), sum));
      store_bf16(d, hn::Mul(value, sigmoid(d, load_bf16(d, gates + i))), out + i);
    }
  }
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace roost
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace roost {

HWY_EXPORT(load_queries);
HWY_EXPORT(sum_keys);
HWY_EXPORT(merge_sums);
HWY_EXPORT(store_outputs);

void load_block(const AttentionBlock& block, const AttentionScratch& scratch) {
  HWY_DYNAMIC_DISPATCH(load_queries)(block, scratch);
}

void sum_split(const AttentionBlock& block, int64_t split, const AttentionScratch& scratch,
               const AttentionSums& sums) {
  HWY_DYNAMIC_DISPATCH(sum_keys)(block, split, scratch, sums);
}

void merge_split(const AttentionBlock& block, int64_t split, const AttentionSums& sums,
                 const AttentionScratch& scratch, const AttentionSums& total) {
  HWY_DYNAMIC_DISPATCH(merge_sums)(block, split, sums, scratch, total);
}

void store_block(const AttentionBlock& block, const AttentionScratch& scratch,
                 const AttentionSums& total) {
  HWY_DYNAMIC_DISPATCH(store_outputs)(block, scratch, total);
}

}  // namespace roost
#endif
