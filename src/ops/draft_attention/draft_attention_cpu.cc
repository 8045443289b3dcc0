// draft_attention on the CPU: an item is one block and KV head. All its queries pass over the keys
// together, a tile of 64 at a time, so that a key is read from memory once.
#include "ops/draft_attention/draft_attention.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/check.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/draft_attention/draft_attention_cpu.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "device/cpu/simd.h"
#include "ops/simd_math.h"

#ifndef ROOST_DRAFT_ATTENTION_ITEM
#define ROOST_DRAFT_ATTENTION_ITEM
namespace roost {
namespace {

constexpr int64_t kBlockRows = DraftSpan::kRowsMax;

// One block and KV head, and a thread's memory for it.
struct DraftItem {
  const DraftAttention* op;
  const DraftSpan* span;
  int64_t kv_head;
  // Query n = j·(nq/nkv) + head of the group: [n, d] each, then one number each.
  float *queries, *sums, *maxima, *totals;
  float *keys, *values;  // [64, d] of the tile
  float* scores;         // [64]

  static size_t n_floats(int64_t heads_per_kv, int64_t dim) {
    const int64_t n_queries = kBlockRows * heads_per_kv;
    return static_cast<size_t>(n_queries * (2 * dim + 2) + kPageTokens * (2 * dim + 1));
  }
  void place(float* memory) {
    const int64_t n_queries = kBlockRows * op->heads_per_kv(), dim = op->dim();
    const auto take = [&](int64_t n) {
      float* const taken = memory;
      memory += n;
      return taken;
    };
    queries = take(n_queries * dim);
    sums = take(n_queries * dim);
    maxima = take(n_queries);
    totals = take(n_queries);
    keys = take(kPageTokens * dim);
    values = take(kPageTokens * dim);
    scores = take(kPageTokens);
  }
};

}  // namespace
}  // namespace roost
#endif

HWY_BEFORE_NAMESPACE();
namespace roost {
namespace HWY_NAMESPACE {
namespace {
namespace hn = hwy::HWY_NAMESPACE;

using Lanes = hn::ScalableTag<float>;

// out = the head u [dim], normalized and rotated; rope holds (cos, sin) pairs.
void turn_head(const uint16_t* u, const float* weight, const float* rope, size_t dim, float eps,
               float* out) {
  const float squares = sum_of_lanes(Lanes(), dim, [&](auto d, size_t i, auto sum) HWY_ATTR {
    const auto v = load_bf16(d, u + i);
    return hn::MulAdd(v, v, sum);
  });
  const float scale = 1.0f / std::sqrt(squares / static_cast<float>(dim) + eps);
  const size_t half = dim / 2;
  for_lanes(Lanes(), half, [&](auto d, size_t i) HWY_ATTR {
    const auto scales = hn::Set(d, scale);
    const size_t j = i + half;
    const auto a = hn::Mul(hn::Mul(load_bf16(d, u + i), scales), hn::LoadU(d, weight + i));
    const auto b = hn::Mul(hn::Mul(load_bf16(d, u + j), scales), hn::LoadU(d, weight + j));
    auto c = hn::Set(d, rope[2 * i]), s = hn::Set(d, rope[2 * i + 1]);
    if constexpr (hn::MaxLanes(d) > 1) hn::LoadInterleaved2(d, rope + 2 * i, c, s);
    hn::StoreU(hn::NegMulAdd(b, s, hn::Mul(a, c)), d, out + i);
    hn::StoreU(hn::MulAdd(a, s, hn::Mul(b, c)), d, out + j);
  });
}

void widen(const uint16_t* from, size_t n, float* to) {
  for_lanes(Lanes(), n,
            [&](auto d, size_t i) HWY_ATTR { hn::StoreU(load_bf16(d, from + i), d, to + i); });
}

// Adds keys [begin, end) of the tile to query n.
void add_keys(const DraftItem& item, int64_t n, int64_t begin, int64_t end) {
  const auto dim = static_cast<size_t>(item.op->dim());
  const float* query = item.queries + static_cast<size_t>(n) * dim;
  float* sum = item.sums + static_cast<size_t>(n) * dim;
  const float to_base2 = item.op->scale * 1.44269504f;
  float maximum = item.maxima[n];
  for (int64_t key = begin; key < end; ++key) {
    const float* k = item.keys + static_cast<size_t>(key) * dim;
    const float dot = sum_of_lanes(Lanes(), dim, [&](auto d, size_t i, auto partial) HWY_ATTR {
      return hn::MulAdd(hn::LoadU(d, query + i), hn::LoadU(d, k + i), partial);
    });
    item.scores[key - begin] = dot * to_base2;
    maximum = std::max(maximum, item.scores[key - begin]);
  }
  const hn::CappedTag<float, 1> d1;
  const float factor = hn::GetLane(exp2(d1, hn::Set(d1, item.maxima[n] - maximum)));
  item.maxima[n] = maximum;
  const auto n_keys = static_cast<size_t>(end - begin);
  for_lanes(Lanes(), n_keys, [&](auto d, size_t i) HWY_ATTR {
    const auto below = hn::Sub(hn::LoadU(d, item.scores + i), hn::Set(d, maximum));
    hn::StoreU(exp2(d, below), d, item.scores + i);
  });
  float total = item.totals[n] * factor;
  for (size_t key = 0; key < n_keys; ++key) total += item.scores[key];
  item.totals[n] = total;
  for_lanes(Lanes(), dim, [&](auto d, size_t i) HWY_ATTR {
    auto o = hn::Mul(hn::LoadU(d, sum + i), hn::Set(d, factor));
    for (size_t key = 0; key < n_keys; ++key) {
      const float* v = item.values + (static_cast<size_t>(begin) + key) * dim;
      o = hn::MulAdd(hn::Set(d, item.scores[key]), hn::LoadU(d, v + i), o);
    }
    hn::StoreU(o, d, sum + i);
  });
}

void load_queries(const DraftItem& item) {
  const DraftAttention& op = *item.op;
  const int64_t dim = op.dim(), group = op.heads_per_kv(), width = op.q.dim(1);
  for (int64_t j = 0; j < item.span->n_rows; ++j) {
    const int64_t t = item.span->first_row + j;
    for (int64_t i = 0; i < group; ++i) {
      const int64_t n = j * group + i;
      turn_head(op.q.as<uint16_t>() + t * width + (item.kv_head * group + i) * dim,
                op.q_weight.as<float>(), op.rope.as<float>() + t * dim, static_cast<size_t>(dim),
                op.eps, item.queries + n * dim);
      std::fill_n(item.sums + n * dim, dim, 0.0f);
      item.maxima[n] = -std::numeric_limits<float>::infinity();
      item.totals[n] = 0;
    }
  }
}

// Context tokens [begin, end), all of one page.
void add_page(const DraftItem& item, int64_t begin, int64_t end) {
  const DraftAttention& op = *item.op;
  const int64_t dim = op.dim(), group = op.heads_per_kv();
  const int64_t page = item.span->page_table[begin / kPageTokens];
  const int64_t at =
      ((page * op.kv_heads() + item.kv_head) * kPageTokens + begin % kPageTokens) * dim;
  const auto n_numbers = static_cast<size_t>((end - begin) * dim);
  widen(op.k_pages.as<uint16_t>() + at, n_numbers, item.keys);
  widen(op.v_pages.as<uint16_t>() + at, n_numbers, item.values);
  for (int64_t j = 0; j < item.span->n_rows; ++j) {
    const int64_t low = op.window > 0 ? item.span->position + j - op.window + 1 : 0;
    if (low >= end) continue;
    for (int64_t i = 0; i < group; ++i)
      add_keys(item, j * group + i, std::max<int64_t>(low - begin, 0), end - begin);
  }
}

void add_block(const DraftItem& item) {
  const DraftAttention& op = *item.op;
  const int64_t dim = op.dim(), group = op.heads_per_kv(), width = op.k.dim(1);
  for (int64_t j = 0; j < item.span->n_rows; ++j) {
    const int64_t t = item.span->first_row + j, at = t * width + item.kv_head * dim;
    turn_head(op.k.as<uint16_t>() + at, op.k_weight.as<float>(), op.rope.as<float>() + t * dim,
              static_cast<size_t>(dim), op.eps, item.keys + j * dim);
    widen(op.v.as<uint16_t>() + at, static_cast<size_t>(dim), item.values + j * dim);
  }
  for (int64_t j = 0; j < item.span->n_rows; ++j) {
    const int64_t n_keys = op.is_causal ? j + 1 : item.span->n_rows;
    for (int64_t i = 0; i < group; ++i) add_keys(item, j * group + i, 0, n_keys);
  }
}

void store(const DraftItem& item) {
  const DraftAttention& op = *item.op;
  const int64_t dim = op.dim(), group = op.heads_per_kv(), width = op.q.dim(1);
  for (int64_t n = 0; n < item.span->n_rows * group; ++n) {
    const int64_t t = item.span->first_row + n / group;
    const float* sum = item.sums + n * dim;
    uint16_t* out = op.out.as<uint16_t>() + t * width + (item.kv_head * group + n % group) * dim;
    for_lanes(Lanes(), static_cast<size_t>(dim), [&](auto d, size_t i) HWY_ATTR {
      store_bf16(d, hn::Div(hn::LoadU(d, sum + i), hn::Set(d, item.totals[n])), out + i);
    });
  }
}

void attend_block(const DraftItem& item) {
  load_queries(item);
  const int64_t window = item.op->window, end = item.span->position;
  const int64_t lowest = window > 0 ? end - window + 1 : 0;  // what the anchor's row sees
  for (int64_t at = std::max<int64_t>(item.span->context_begin, lowest), next = 0; at < end;
       at = next) {
    next = std::min((at / kPageTokens + 1) * kPageTokens, end);
    add_page(item, at, next);
  }
  add_block(item);
  store(item);
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace roost
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace roost {

HWY_EXPORT(attend_block);

size_t draft_attention_workspace_bytes(int64_t heads_per_kv, int64_t head_dim, int n_threads) {
  return static_cast<size_t>(n_threads) * DraftItem::n_floats(heads_per_kv, head_dim) *
             sizeof(float) +
         Arena::kAlign;
}

void draft_attention_cpu(const DraftAttention& op, CpuContext& context) {
  check(op);
  for (const Tensor* t : {&op.q, &op.k, &op.v, &op.k_pages, &op.v_pages, &op.out})
    ROOST_CHECK(t->dtype == DType::kBF16);
  const Arena::Scope scope(context.workspace);
  const size_t n_floats = DraftItem::n_floats(op.heads_per_kv(), op.dim());
  const std::span<float> memory =
      context.workspace.span<float>(static_cast<size_t>(context.pool.n_threads()) * n_floats);
  const auto attend = HWY_DYNAMIC_DISPATCH(attend_block);
  const int64_t n_items = static_cast<int64_t>(op.spans.size()) * op.kv_heads();
  context.pool.parallel_for_with_thread(n_items, [&](int64_t i, int thread) {
    DraftItem item{.op = &op,
                   .span = &op.spans[static_cast<size_t>(i / op.kv_heads())],
                   .kv_head = i % op.kv_heads()};
    item.place(memory.data() + static_cast<size_t>(thread) * n_floats);
    attend(item);
  });
}

}  // namespace roost
#endif
