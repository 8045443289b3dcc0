// gated_delta on the CPU: an item is one head of one sequence over all its rows. The state's
// columns are independent, so a block of them is taken through all rows before the next one: it
// stays in the nearest memory. A row's update is done on the way of the next row's sums, one pass
// over the state a row; passes, blocks and copies change no bit.
#include "ops/gated_delta/gated_delta.h"

#include <cmath>

#include "base/check.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/gated_delta/gated_delta_cpu.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "device/cpu/simd.h"
#include "ops/simd_math.h"

#ifndef ROOST_OPS_GATED_DELTA_CPU_CC_
#define ROOST_OPS_GATED_DELTA_CPU_CC_
namespace roost {

constexpr int64_t kColumnsMax = 64;  // of a block: four vectors of the widest target

// Per thread: a block of the state behind the first row, keys and query of a row in f32.
struct DeltaScratch {
  float state[GatedDelta::kKeyDimMax * kColumnsMax];
  float keys[2][GatedDelta::kKeyDimMax];  // of this row and of the row whose update is due
  float query[GatedDelta::kKeyDimMax];
  float delta[kColumnsMax];  // d of the row whose update is due
};

}  // namespace roost
#endif

HWY_BEFORE_NAMESPACE();
namespace roost {
namespace HWY_NAMESPACE {
namespace {
namespace hn = hwy::HWY_NAMESPACE;

using Lanes = hn::ScalableTag<float>;

// A block of columns of a state: row i at data + i · stride.
struct StateBlock {
  float* data;
  int64_t stride;
};

// What one row brings to every column of a head.
struct RowTerms {
  const float* keys;
  const float* query;
  float beta, decay, kq;
};

// S' = decay·S + k·dᵀ, from one place to another; the update of the row `due`.
template <class D, int kVectors>
void update(D d, int64_t key_dim, StateBlock from, StateBlock to, const RowTerms& due,
            const float* delta) {
  const size_t n = hn::Lanes(d);
  const auto decay = hn::Set(d, due.decay);
  for (int64_t i = 0; i < key_dim; ++i) {
    const auto key = hn::Set(d, due.keys[i]);
    for (size_t c = 0; c < kVectors * n; c += n) {
      const auto s = hn::LoadU(d, from.data + i * from.stride + c);
      hn::StoreU(hn::MulAdd(key, hn::LoadU(d, delta + c), hn::Mul(decay, s)), d,
                 to.data + i * to.stride + c);
    }
  }
}

// d and y of one vector of columns, from its sums.
template <class D, class V>
HWY_INLINE void finish_row(D d, const RowTerms& row, V m, V n, const uint16_t* v, float* delta,
                           uint16_t* y) {
  const auto decay = hn::Set(d, row.decay);
  const auto change = hn::Mul(hn::Set(d, row.beta), hn::NegMulAdd(decay, m, load_bf16(d, v)));
  hn::StoreU(change, d, delta);
  if (y != nullptr) store_bf16(d, hn::MulAdd(change, hn::Set(d, row.kq), hn::Mul(decay, n)), y);
}

// m = Sᵀ·k and, where y is wanted, n = Sᵀ·q of one row; then its d and y. With kUpdates, S is first
// updated by the row `due` and written to `to`. The sums run over ascending key dims, one chain a
// column.
template <class D, int kVectors, bool kUpdates, bool kWantsY>
void sum_row(D d, int64_t key_dim, StateBlock from, StateBlock to, const RowTerms& due,
             const RowTerms& row, const uint16_t* v, float* delta, uint16_t* y) {
  static_assert(kVectors == 1 || kVectors == 4);
  using V = hn::Vec<D>;
  const size_t n_lanes = hn::Lanes(d);
  const size_t c1 = kVectors > 1 ? n_lanes : 0, c2 = 2 * c1, c3 = 3 * c1;
  V m0 = hn::Zero(d), m1 = m0, m2 = m0, m3 = m0, n0 = m0, n1 = m0, n2 = m0, n3 = m0;
  V d0 = m0, d1 = m0, d2 = m0, d3 = m0;
  if constexpr (kUpdates) {
    d0 = hn::LoadU(d, delta);
    d1 = hn::LoadU(d, delta + c1);
    d2 = hn::LoadU(d, delta + c2);
    d3 = hn::LoadU(d, delta + c3);
  }
  const V decay = hn::Set(d, due.decay);
  for (int64_t i = 0; i < key_dim; ++i) {
    const V key = hn::Set(d, row.keys[i]);
    const V query = hn::Set(d, kWantsY ? row.query[i] : 0.0f);
    const V key_due = hn::Set(d, kUpdates ? due.keys[i] : 0.0f);
    const float* source = from.data + i * from.stride;
    float* target = to.data + i * to.stride;
    const auto step = [&](size_t c, V change, V& m, V& n) HWY_ATTR {
      V s = hn::LoadU(d, source + c);
      if constexpr (kUpdates) {
        s = hn::MulAdd(key_due, change, hn::Mul(decay, s));
        hn::StoreU(s, d, target + c);
      }
      m = hn::MulAdd(key, s, m);
      if constexpr (kWantsY) n = hn::MulAdd(query, s, n);
    };
    step(0, d0, m0, n0);
    if constexpr (kVectors > 1) {
      step(c1, d1, m1, n1);
      step(c2, d2, m2, n2);
      step(c3, d3, m3, n3);
    }
  }
  const auto y_at = [&](size_t c) { return kWantsY ? y + c : nullptr; };
  finish_row(d, row, m0, n0, v, delta, y_at(0));
  if constexpr (kVectors > 1) {
    finish_row(d, row, m1, n1, v + c1, delta + c1, y_at(c1));
    finish_row(d, row, m2, n2, v + c2, delta + c2, y_at(c2));
    finish_row(d, row, m3, n3, v + c3, delta + c3, y_at(c3));
  }
}

void widen(const uint16_t* from, int64_t n, float* to) {
  for_lanes(Lanes(), static_cast<size_t>(n),
            [&](auto d, size_t i) HWY_ATTR { hn::StoreU(load_bf16(d, from + i), d, to + i); });
}

// A block of columns of one head through all rows of a sequence. Unnormalized y goes to `out`.
template <class D, int kVectors>
void run_block(D d, const GatedDelta& op, const DeltaSpan& span, int64_t head, int64_t column,
               DeltaScratch& scratch) {
  const int64_t key_heads = op.q.dim(1), value_heads = op.v.dim(1);
  const int64_t key_dim = op.q.dim(2), value_dim = op.v.dim(2);
  const int64_t key_head = head / (value_heads / key_heads);
  const StateBlock slot = {
      op.state.as<float>() + (span.slot * value_heads + head) * key_dim * value_dim + column,
      value_dim};
  const StateBlock block = {scratch.state, static_cast<int64_t>(kVectors * hn::Lanes(d))};
  StateBlock current = slot;
  RowTerms due = {};
  bool is_due = false;
  for (int64_t p = 0; p < span.n_packed(); ++p) {
    if (is_due && p == span.store_after) {
      update<D, kVectors>(d, key_dim, current, slot, due, scratch.delta);
      current = slot;  // read from here, written no more
      is_due = false;
    }
    const int64_t packed = span.first_packed + p, row = span.first_row + p - span.n_replay;
    const bool wants_y = p >= span.n_replay;
    RowTerms terms = {.keys = scratch.keys[p % 2],
                      .query = scratch.query,
                      .beta = op.beta.as<float>()[packed * value_heads + head],
                      .decay = op.decay.as<float>()[packed * value_heads + head],
                      .kq = op.kq.as<float>()[packed * key_heads + key_head]};
    widen(op.k.as<uint16_t>() + (packed * key_heads + key_head) * key_dim, key_dim,
          scratch.keys[p % 2]);
    if (wants_y)
      widen(op.q.as<uint16_t>() + (packed * key_heads + key_head) * key_dim, key_dim,
            scratch.query);
    const uint16_t* v = op.v.as<uint16_t>() + (packed * value_heads + head) * value_dim + column;
    uint16_t* y =
        wants_y ? op.out.as<uint16_t>() + (row * value_heads + head) * value_dim + column : nullptr;
    const auto sums =
        is_due
            ? (wants_y ? &sum_row<D, kVectors, true, true> : &sum_row<D, kVectors, true, false>)
            : (wants_y ? &sum_row<D, kVectors, false, true> : &sum_row<D, kVectors, false, false>);
    sums(d, key_dim, current, block, due, terms, v, scratch.delta, y);
    if (is_due) current = block;
    due = terms;
    is_due = true;
  }
  if (is_due && span.store_after == span.n_packed())
    update<D, kVectors>(d, key_dim, current, slot, due, scratch.delta);
}

// out = r(y · weight / sqrt(mean(y²) + eps) · silu(z)) over one head, where `out` holds y.
void norm_and_gate(uint16_t* out, const uint16_t* z, const float* weight, size_t n, float eps) {
  const float squares = sum_of_lanes(Lanes(), n, [&](auto d, size_t i, auto sum) HWY_ATTR {
    const auto y = load_bf16(d, out + i);
    return hn::MulAdd(y, y, sum);
  });
  const float scale = 1.0f / std::sqrt(squares / static_cast<float>(n) + eps);
  for_lanes(Lanes(), n, [&](auto d, size_t i) HWY_ATTR {
    const auto gate = load_bf16(d, z + i);
    const auto normed =
        hn::Mul(hn::Mul(load_bf16(d, out + i), hn::Set(d, scale)), hn::LoadU(d, weight + i));
    store_bf16(d, hn::Mul(normed, hn::Mul(gate, sigmoid(d, gate))), out + i);
  });
}

void delta_head(const GatedDelta& op, const DeltaSpan& span, int64_t head, DeltaScratch& scratch) {
  const Lanes d;
  const auto n_lanes = static_cast<int64_t>(hn::Lanes(d));
  const int64_t dim = op.v.dim(2), width = op.z.dim(1);
  int64_t column = 0;
  for (; column + 4 * n_lanes <= dim; column += 4 * n_lanes)
    run_block<Lanes, 4>(d, op, span, head, column, scratch);
  for (; column + n_lanes <= dim; column += n_lanes)
    run_block<Lanes, 1>(d, op, span, head, column, scratch);
  const hn::CappedTag<float, 1> d1;
  for (; column < dim; ++column) run_block<decltype(d1), 1>(d1, op, span, head, column, scratch);
  for (int64_t row = span.first_row; row < span.first_row + span.n_new; ++row) {
    const int64_t at = row * width + head * dim;
    norm_and_gate(op.out.as<uint16_t>() + at, op.z.as<uint16_t>() + at, op.norm_weight.as<float>(),
                  static_cast<size_t>(dim), op.eps);
  }
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace roost
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace roost {

HWY_EXPORT(delta_head);

size_t gated_delta_workspace_bytes(int n_threads) {
  return static_cast<size_t>(n_threads) * sizeof(DeltaScratch) + Arena::kAlign;
}

void gated_delta_cpu(const GatedDelta& op, CpuContext& context) {
  check(op);
  ROOST_CHECK(op.q.dtype == DType::kBF16 && op.k.dtype == DType::kBF16);
  ROOST_CHECK(op.v.dtype == DType::kBF16 && op.z.dtype == DType::kBF16);
  ROOST_CHECK(op.out.dtype == DType::kBF16);
  const Arena::Scope scope(context.workspace);
  const auto scratch =
      context.workspace.span<DeltaScratch>(static_cast<size_t>(context.pool.n_threads()));
  const auto run_head = HWY_DYNAMIC_DISPATCH(delta_head);
  const int64_t n_heads = op.v.dim(1);
  context.pool.parallel_for_with_thread(
      n_heads * static_cast<int64_t>(op.spans.size()), [&](int64_t i, int thread) {
        run_head(op, op.spans[static_cast<size_t>(i / n_heads)], i % n_heads,
                 scratch[static_cast<size_t>(thread)]);
      });
}

}  // namespace roost
#endif
