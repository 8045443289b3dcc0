#include "ops/attention/attention.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "tests/contract/contract.h"
#include "tests/contract/machine.h"
#include "tests/contract/places.h"

namespace roost {
namespace {

using namespace contract;
using Values = std::vector<double>;

struct Case {
  std::string name;
  int64_t n_heads, kv_heads, dim, n_pages;
  std::vector<Place> places;
  Values q, q_gate, k_pages, v_pages;  // of codes: what they stand for
  float scale;
  Values k_codes, v_codes, k_scales, v_scales;  // empty: there are none

  bool has_codes() const { return !k_scales.empty(); }

  int64_t n_rows() const { return n_rows_of(places); }
};

Attention arrange(const Case& c, Memory& memory) {
  const int64_t n_rows = c.n_rows();
  const Shape pages = {c.n_pages, c.kv_heads, kPageTokens, c.dim};
  Attention op{.q = memory.input(DType::kBF16, {n_rows, c.n_heads, c.dim}, c.q),
               .q_gate = memory.input(DType::kBF16, {n_rows, c.n_heads, 2 * c.dim}, c.q_gate),
               .out = memory.output(DType::kBF16, {n_rows, c.n_heads * c.dim}),
               .spans = spans_of(c.places, memory),
               .scale = c.scale};
  if (c.has_codes()) {
    const Shape scales = {c.n_pages, c.kv_heads, kPageTokens};
    op.k_pages = memory.input(DType::kI8, pages, c.k_codes);
    op.v_pages = memory.input(DType::kI8, {c.n_pages, c.kv_heads, c.dim, kPageTokens}, c.v_codes);
    op.k_scales = memory.input(DType::kF32, scales, c.k_scales);
    op.v_scales = memory.input(DType::kF32, scales, c.v_scales);
  } else {
    op.k_pages = memory.input(DType::kBF16, pages, c.k_pages);
    op.v_pages = memory.input(DType::kBF16, pages, c.v_pages);
  }
  return op;
}

// What the bound of one row and head is made of.
struct Sizes {
  Values weighted;    // Σ P|V| / ΣP, by dim
  double scores = 0;  // A of the contract
  double values = 0;  // max |V|
};

Sizes sizes_of(const Case& c, const Place& place, int64_t position, int64_t row, int64_t head) {
  const auto dim = static_cast<size_t>(c.dim);
  const int64_t kv_head = head / (c.n_heads / c.kv_heads);
  const double* q = &c.q[static_cast<size_t>((row * c.n_heads + head) * c.dim)];
  const auto slot = [&](int64_t token) {
    const int64_t page = place.pages[static_cast<size_t>(token / kPageTokens)];
    return static_cast<size_t>(((page * c.kv_heads + kv_head) * kPageTokens + token % kPageTokens) *
                               c.dim);
  };
  Sizes sizes{.weighted = Values(dim)};
  Values scores;
  for (int64_t token = 0; token <= position; ++token) {
    double sum = 0, parts = 0;
    for (size_t i = 0; i < dim; ++i) {
      const double part = q[i] * c.k_pages[slot(token) + i] * c.scale * std::log2(std::exp(1));
      sum += part;
      parts += std::abs(part);
      sizes.values = std::max(sizes.values, std::abs(c.v_pages[slot(token) + i]));
    }
    sizes.scores = std::max(sizes.scores, parts);
    scores.push_back(sum);
  }
  const double maximum = *std::max_element(scores.begin(), scores.end());
  double total = 0;
  for (size_t t = 0; t < scores.size(); ++t) {
    const double p = std::exp2(scores[t] - maximum);
    total += p;
    for (size_t i = 0; i < dim; ++i)
      sizes.weighted[i] += p * std::abs(c.v_pages[slot(static_cast<int64_t>(t)) + i]);
  }
  for (double& value : sizes.weighted) value /= total;
  return sizes;
}

void judge(const Case& c, const Attention& got, const ReferenceRules& rules, Judge& judge) {
  Memory wide(Memory::Mode::kWide);
  const Attention exact = arrange(c, wide);
  attention_reference(exact, rules);
  Values bounds(static_cast<size_t>(exact.out.n_elements()));
  int64_t row = 0;
  for (const Place& place : c.places) {
    for (int32_t r = 0; r < place.n_rows; ++r, ++row) {
      const int64_t position = place.first_index + r;
      for (int64_t head = 0; head < c.n_heads; ++head) {
        const Sizes sizes = sizes_of(c, place, position, row, head);
        const double sums = static_cast<double>(c.dim) * (1 + sizes.scores) +
                            static_cast<double>(position) / 8 + 512;
        for (int64_t i = 0; i < c.dim; ++i) {
          const auto at = static_cast<size_t>((row * c.n_heads + head) * c.dim + i);
          const double gate =
              c.q_gate[static_cast<size_t>(((row * c.n_heads + head) * 2 + 1) * c.dim + i)];
          const double o_bound =
              0x1p-7 * sizes.weighted[static_cast<size_t>(i)] + sums * 0x1p-23 * sizes.values;
          bounds[at] = o_bound / (1 + std::exp(-gate)) +
                       0x1p-7 * std::abs(exact.out.get(static_cast<int64_t>(at))) + 0x1p-126;
        }
      }
    }
  }
  judge.near("out", got.out, exact.out, [&](int64_t i) { return bounds[static_cast<size_t>(i)]; });
}

Case select(const Case& c, std::span<const int64_t> rows) {
  Case part = c;
  part.places.clear();
  part.q.clear();
  part.q_gate.clear();
  const std::vector<Place> place_of = single_rows(c.places);
  const auto copy_row = [&](const Values& from, int64_t row, Values& to) {
    const auto width = static_cast<std::ptrdiff_t>(from.size()) / c.n_rows();
    to.insert(to.end(), from.begin() + row * width, from.begin() + (row + 1) * width);
  };
  for (const int64_t row : rows) {
    part.places.push_back(place_of[static_cast<size_t>(row)]);
    copy_row(c.q, row, part.q);
    copy_row(c.q_gate, row, part.q_gate);
  }
  return part;
}

const Suite<Attention, Case> kSuite{
    .name = [](const Case& c) { return c.name; },
    .arrange = arrange,
    .judge = judge,
    .n_rows = [](const Case& c) { return c.n_rows(); },
    .select = select,
    .row_outputs = [](const Attention& op) { return std::vector{op.out}; },
};

// Pages are dealt out by a multiplicative shuffle; every slot that no row may see is NaN.
void lay_out_pages(Case& c, Fill fill, uint64_t seed) {
  int64_t n_used = 0;
  for (const Place& place : c.places)
    n_used += (place.first_index + place.n_rows - 1) / kPageTokens + 1;
  c.n_pages = n_used + 2;
  while (std::gcd(c.n_pages, 7) != 1) ++c.n_pages;
  const int64_t token_size = c.kv_heads * c.dim, page_size = token_size * kPageTokens;
  c.k_pages.assign(static_cast<size_t>(c.n_pages * page_size), NAN);
  c.v_pages = c.k_pages;
  int64_t next = 0;
  for (Place& place : c.places) {
    place.pages.clear();
    const int64_t n_tokens = place.first_index + place.n_rows;
    const Values k = values(fill, n_tokens * token_size, seed++);
    const Values v = values(fill, n_tokens * token_size, seed++);
    for (int64_t token = 0; token < n_tokens; ++token) {
      if (token % kPageTokens == 0)
        place.pages.push_back(static_cast<int32_t>((next++ * 7 + 3) % c.n_pages));
      for (int64_t g = 0; g < c.kv_heads; ++g) {
        const int64_t from = (token * c.kv_heads + g) * c.dim;
        const int64_t to =
            ((place.pages.back() * c.kv_heads + g) * kPageTokens + token % kPageTokens) * c.dim;
        std::copy_n(k.begin() + from, c.dim, c.k_pages.begin() + to);
        std::copy_n(v.begin() + from, c.dim, c.v_pages.begin() + to);
      }
    }
  }
}

Case make_case(int64_t n_heads, int64_t kv_heads, int64_t dim, Fill fill, std::vector<Place> places,
               uint64_t seed) {
  Case c{.name = name_of(fill) + " " + std::to_string(n_heads) + "/" + std::to_string(kv_heads) +
                 " heads of " + std::to_string(dim) + " from " +
                 std::to_string(places[0].first_index),
         .n_heads = n_heads,
         .kv_heads = kv_heads,
         .dim = dim,
         .n_pages = 0,
         .places = std::move(places),
         .q = {},
         .q_gate = {},
         .k_pages = {},
         .v_pages = {},
         .scale = static_cast<float>(1 / std::sqrt(static_cast<double>(dim)))};
  c.q = values(fill, c.n_rows() * n_heads * dim, seed);
  c.q_gate = values(fill, c.n_rows() * n_heads * 2 * dim, seed + 1);
  lay_out_pages(c, fill, seed + 2);
  return c;
}

// The case with codes of its pages, which then hold what the codes stand for. A card has no kernel
// for codes.
[[maybe_unused]] Case coded(Case c) {
  const auto n_slots = c.k_pages.size() / static_cast<size_t>(c.dim);
  const auto dim = static_cast<size_t>(c.dim);
  c.name += ", codes";
  c.k_scales.assign(n_slots, NAN), c.v_scales.assign(n_slots, NAN);
  c.k_codes.assign(c.k_pages.size(), 77), c.v_codes = c.k_codes;
  for (size_t slot = 0; slot < n_slots; ++slot) {
    for (const bool is_key : {true, false}) {
      double* values = (is_key ? c.k_pages : c.v_pages).data() + slot * dim;
      if (std::isnan(values[0])) continue;
      double largest = 0;
      for (size_t i = 0; i < dim; ++i) largest = std::max(largest, std::abs(values[i]));
      const double scale = static_cast<float>(largest / 127);
      (is_key ? c.k_scales : c.v_scales)[slot] = scale;
      for (size_t i = 0; i < dim; ++i) {
        const double code = scale > 0 ? std::nearbyint(values[i] / scale) : 0;
        const size_t transposed = (slot / kPageTokens * dim + i) * kPageTokens + slot % kPageTokens;
        (is_key ? c.k_codes[slot * dim + i] : c.v_codes[transposed]) = code;
        values[i] = code * scale;
      }
    }
  }
  return c;
}

std::vector<Case> cases() {
  std::vector<Case> all;
  uint64_t seed = 1;
  for (const Fill fill : kFills) {
    all.push_back(make_case(1, 1, 16, fill, {{0, 3, {}}, {5, 1, {}}}, seed += 100));
    all.push_back(make_case(6, 1, 64, fill, {{62, 4, {}}}, seed += 100));
    all.push_back(make_case(8, 4, 48, fill, {{127, 3, {}}, {0, 1, {}}}, seed += 100));
    all.push_back(make_case(12, 2, 32, fill, {{509, 6, {}}}, seed += 100));
  }
#ifndef ROOST_CONTRACT_CUDA  // a card has no kernel for codes
  for (const Fill fill : kFills) {
    all.push_back(coded(make_case(6, 1, 64, fill, {{62, 4, {}}}, seed += 100)));
    all.push_back(coded(make_case(8, 4, 48, fill, {{127, 3, {}}, {0, 1, {}}}, seed += 100)));
    all.push_back(coded(make_case(12, 2, 32, fill, {{509, 6, {}}}, seed += 100)));
  }
  all.push_back(coded(make_case(16, 1, 256, Fill::kNormal, {{60, 6, {}}}, seed += 100)));
#endif
  all.push_back(make_case(16, 1, 256, Fill::kNormal, {{60, 6, {}}}, seed += 100));
  all.push_back(make_case(16, 2, 256, Fill::kNormal, {{511, 2, {}}, {3, 1, {}}}, seed += 100));
  all.push_back(make_case(2, 1, 16, Fill::kNormal, {{32'766, 4, {}}}, seed += 100));
  return all;
}

std::vector<Case> small_cases() {
  std::vector<Case> all = cases();
  all.pop_back();
  return all;
}

// Tokens of every page: the second half of the head dims first.
void swap_halves(Values& pages, int64_t dim) {
  for (auto at = pages.begin(); at != pages.end(); at += dim)
    std::rotate(at, at + dim / 2, at + dim);
}

void rotate_rows(const Tensor& out, int64_t by) {
  auto* bits = out.as<uint16_t>();
  std::rotate(bits, bits + by, bits + out.n_elements());
}

std::vector<Fault<Attention, Case>> faults() {
  return {
      {"neighbour's KV head",
       [](Case& c) {
         const auto by = c.kv_heads > 1 ? c.dim * kPageTokens : 0;
         std::rotate(c.v_pages.begin(), c.v_pages.begin() + by, c.v_pages.end());
       }},
#ifndef ROOST_CONTRACT_CUDA  // a card has no kernel for codes
      {"scale of the next token",
       [](Case& c) {
         if (c.has_codes())
           std::rotate(c.k_scales.begin(), c.k_scales.begin() + 1, c.k_scales.end());
       }},
      {"codes of values not transposed",
       [](Case& c) {
         if (c.has_codes()) c.v_codes = c.k_codes;
       }},
      {"scale of the values left out",
       [](Case& c) {
         for (double& s : c.v_scales) s = std::isnan(s) ? s : 1;
       }},
#endif
      {"mask one key short",
       [](Case& c) { c.places[0].first_index -= c.places[0].first_index > 0; }},
      {"mask one key too far", [](Case& c) { c.places[0].first_index += 1; }},
      {"stale page",
       [](Case& c) {
         std::vector<int32_t>& pages = c.places[0].pages;
         pages.back() = pages.front();
       }},
      {"pages of another order",
       [](Case& c) {
         std::rotate(c.places[0].pages.begin(), c.places[0].pages.end() - 1,
                     c.places[0].pages.end());
       }},
      {"scale left out", [](Case& c) { c.scale = 1; }},
      {"natural base", [](Case& c) { c.scale *= 0.6931472f; }},
      {"keys of the next token",
       [](Case& c) { std::rotate(c.k_pages.begin(), c.k_pages.begin() + c.dim, c.k_pages.end()); }},
      {"halves of the values swapped", [](Case& c) { swap_halves(c.v_pages, c.dim); }},
      {"gate is the query's half", [](Case& c) { swap_halves(c.q_gate, 2 * c.dim); }},
      {"gate of the next head",
       [](Case& c) {
         std::rotate(c.q_gate.begin(), c.q_gate.begin() + 2 * c.dim, c.q_gate.end());
       }},
      {"outputs one head late", nullptr,
       [](const Attention& op) { rotate_rows(op.out, op.q.dim(2)); }},
      {"last dim not written", nullptr,
       [](const Attention& op) { op.out.set(op.out.n_elements() - 1, NAN); }},
  };
}

class AttentionTest : public testing::Test {
 protected:
  Machine one_{1}, two_{2};
  std::vector<Backend<Attention>> backends_{one_.backend<Attention>(), two_.backend<Attention>()};

  std::vector<uint16_t> outputs(const Case& c, size_t backend = 0) {
    Memory memory;
    const Attention op = arrange(c, memory);
    backends_[backend].run(op);
    const auto* bits = op.out.as<uint16_t>();
    return {bits, bits + op.out.n_elements()};
  }
};

TEST_F(AttentionTest, keeps_its_contract) {
  double worst = 0;
  EXPECT_EQ(kernel_keeps_contract(kSuite, cases(), backends_, &worst), "");
  EXPECT_GT(worst, 0.1) << "the bound is far too wide";
}

TEST_F(AttentionTest, gives_a_row_the_same_bits_in_any_company) {
  EXPECT_EQ(bits_are_the_rows_own(kSuite, small_cases(), backends_), "");
}

// A prompt's rows in one span, in chunks, and one by one.
TEST_F(AttentionTest, gives_a_prompt_the_same_bits_cut_anywhere) {
  struct Run {
    int64_t n_heads, kv_heads, dim;
    int32_t first, n_rows;
  };
  const Run runs[] = {{6, 1, 64, 0, 66},      {16, 2, 16, 440, 140},   {8, 1, 16, 32'700, 100},
                      {2, 1, 16, 65'530, 12}, {1, 1, 16, 131'060, 20}, {32, 2, 32, 50, 65},
                      {1, 1, 16, 262'130, 14}};
  for (const Run& run : runs) {
    const Case whole = make_case(run.n_heads, run.kv_heads, run.dim, Fill::kNormal,
                                 {{run.first, run.n_rows, {}}}, 7);
    const std::vector<uint16_t> want = outputs(whole);
    for (const int32_t chunk : {1, 2, 7, 64, 65}) {
      if (run.first > 40'000 && chunk != 7) continue;  // long: one cut across the border is enough
      Case cut = whole;
      cut.places.clear();
      for (int32_t at = 0; at < run.n_rows; at += chunk)
        cut.places.push_back(
            {run.first + at, std::min(chunk, run.n_rows - at), whole.places[0].pages});
      EXPECT_EQ(outputs(cut, 1), want) << whole.name << " in chunks of " << chunk;
    }
    std::vector<int64_t> last(1, run.n_rows - 1);
    const std::vector<uint16_t> alone = outputs(select(whole, last), 1);
    EXPECT_TRUE(std::equal(alone.begin(), alone.end(), want.end() - whole.n_heads * whole.dim))
        << whole.name << ", last row alone";
  }
}

TEST_F(AttentionTest, does_not_see_where_pages_lie) {
  const Case c = make_case(8, 2, 32, Fill::kNormal, {{700, 9, {}}, {70, 1, {}}}, 3);
  Case moved = c;
  const auto page_size = static_cast<std::ptrdiff_t>(c.k_pages.size()) / c.n_pages;
  const auto new_place = [&](int64_t page) { return (page * 5 + 2) % c.n_pages; };
  ASSERT_EQ(std::gcd(c.n_pages, 5), 1);
  for (int64_t page = 0; page < c.n_pages; ++page) {
    const auto to = new_place(page) * page_size;
    std::copy_n(c.k_pages.begin() + page * page_size, page_size, moved.k_pages.begin() + to);
    std::copy_n(c.v_pages.begin() + page * page_size, page_size, moved.v_pages.begin() + to);
  }
  for (Place& place : moved.places) {
    for (int32_t& page : place.pages) page = static_cast<int32_t>(new_place(page));
  }
  EXPECT_EQ(outputs(moved), outputs(c));
}

// Later rows of a chunk, and other streams, may hold anything: also what is no number.
TEST_F(AttentionTest, keeps_a_bad_row_out_of_the_rows_before_it) {
  const Case good = make_case(6, 1, 32, Fill::kNormal, {{500, 20, {}}, {31, 2, {}}}, 5);
  Case bad = good;
  const int64_t token = 505, page = good.places[0].pages[token / kPageTokens];
  const auto at = static_cast<size_t>((page * kPageTokens + token % kPageTokens) * good.dim);
  for (size_t i = 0; i < 32; ++i) bad.k_pages[at + i] = bad.v_pages[at + i] = NAN;
  const std::vector<uint16_t> want = outputs(good), got = outputs(bad);
  const auto width = good.n_heads * good.dim;
  EXPECT_TRUE(std::equal(got.begin(), got.begin() + 5 * width, want.begin()));
  EXPECT_TRUE(std::equal(got.end() - 2 * width, got.end(), want.end() - 2 * width));
  for (auto bits = got.begin() + 5 * width; bits != got.end() - 2 * width; ++bits)
    ASSERT_TRUE(std::isnan(f32_from_bf16(*bits)));
}

#ifndef ROOST_CONTRACT_CUDA
TEST_F(AttentionTest, gives_a_prompt_over_codes_the_same_bits_cut_anywhere) {
  const Case whole = coded(make_case(6, 2, 32, Fill::kNormal, {{500, 80, {}}}, 7));
  const std::vector<uint16_t> want = outputs(whole);
  for (const int32_t chunk : {1, 7, 64}) {
    Case cut = whole;
    cut.places.clear();
    for (int32_t at = 0; at < 80; at += chunk)
      cut.places.push_back({500 + at, std::min(chunk, 80 - at), whole.places[0].pages});
    EXPECT_EQ(outputs(cut, 1), want) << chunk;
  }
}

TEST_F(AttentionTest, plans_its_workspace) {
  CpuMachine small(2, attention_workspace_bytes(64, 2, 40, 2));
  const Backend<Attention> backend = small.backend(attention_cpu);
  Memory memory;
  backend.run(arrange(make_case(12, 2, 64, Fill::kNormal, {{1'000, 40, {}}}, 9), memory));
  Memory other;
  backend.run(arrange(make_case(12, 2, 64, Fill::kNormal, {{4'999, 1, {}}}, 9), other));
}
#endif

TEST_F(AttentionTest, sees_every_planted_fault) {
  EXPECT_EQ(faults_not_seen(kSuite, small_cases(), backends_[0], faults()), "");
}

}  // namespace
}  // namespace roost
