// How the tensor core adds: probes with sums of a few chosen products, and the search for the
// integer model that gives the same bits.
#pragma once

#include <cmath>
#include <string>
#include <vector>

#include "laws/cuda/accumulator_model.h"
#include "laws/cuda/device_array.cuh"
#include "laws/cuda/fills.h"
#include "laws/cuda/products.cuh"
#include "laws/cuda/report.h"

namespace roost::laws {

constexpr int kProbeK = 48;  // three k16 steps

// One output: the sum of a[k] * b[k], all absent products being 0 * 1.
struct Sum {
  float a[kProbeK] = {};
  float b[kProbeK];

  Sum() {
    for (float& one : b) one = 1.0f;
  }
  Sum& put(int k, float x, float y = 1.0f) {
    a[k] = x;
    b[k] = y;
    return *this;
  }
};

// Eight sums a tile, on its diagonal.
inline std::vector<float> run_sums(const std::vector<Sum>& sums, Launch launch) {
  const size_t n_tiles = (sums.size() + 7) / 8;
  std::vector<Bf16> a(n_tiles * kRows * kProbeK), b(n_tiles * 8 * kProbeK);
  for (size_t i = 0; i < sums.size(); ++i) {
    for (int k = 0; k < kProbeK; ++k) {
      a[(i / 8 * kRows + i % 8) * kProbeK + k] = __float2bfloat16(sums[i].a[k]);
      b[i * kProbeK + k] = __float2bfloat16(sums[i].b[k]);
    }
  }
  const DeviceArray<Bf16> device_a(a), device_b(b);
  const DeviceArray<float> d(n_tiles * kRows * 8);
  launch({device_a.data(), device_b.data(), d.data(), kProbeK, kRows * kProbeK, 8 * kProbeK},
         int(n_tiles), nullptr);
  const std::vector<float> all = d.read();
  std::vector<float> out(sums.size());
  for (size_t i = 0; i < sums.size(); ++i) out[i] = all[(i / 8 * kRows + i % 8) * 8 + i % 8];
  return out;
}

inline std::vector<float> run_sums(const std::vector<Sum>& sums) {
  return run_sums(sums, launch_product<8, FromRegisters>);
}

constexpr int kDepthMax = 36;

// The largest d for which make(2^-d) still leaves something of 2^-d in its sum.
template <typename Make>
int surviving_bits(const Make& make) {
  std::vector<Sum> sums;
  for (int d = 1; d <= kDepthMax; ++d) sums.push_back(make(std::ldexp(1.0f, -d)));
  const std::vector<float> out = run_sums(sums);
  int depth = 0;
  while (depth < kDepthMax && out[depth] != 0.0f) ++depth;
  return depth;
}

// 1 at position i, -1 at j, 2^-d at l: over all i, j and two l. Positions added in one sum keep the
// same bits; a step made of smaller sums would show as two or more values.
inline std::vector<int> surviving_bits_by_position() {
  std::vector<Sum> sums;
  for (int i = 0; i < 16; ++i)
    for (int j = 0; j < 16; ++j)
      for (const bool is_low : {true, false})
        for (int d = 1; d <= kDepthMax && i != j; ++d) {
          int l = is_low ? 0 : 15;
          while (l == i || l == j) l += is_low ? 1 : -1;
          sums.push_back(Sum().put(i, 1).put(j, -1).put(l, std::ldexp(1.0f, -d)));
        }
  const std::vector<float> out = run_sums(sums);
  std::vector<int> depths;
  for (size_t at = 0; at < out.size(); at += kDepthMax) {
    int depth = 0;
    while (depth < kDepthMax && out[at + depth] != 0.0f) ++depth;
    depths.push_back(depth);
  }
  return depths;
}

// "x -> y" for each pair, y in units of `unit`.
inline std::string mapped(const std::vector<float>& x, const std::vector<float>& y, float unit) {
  std::string text;
  for (size_t i = 0; i < x.size(); ++i) {
    char item[64];
    std::snprintf(item, sizeof item, "%s%g -> %g", i == 0 ? "" : ", ", x[i], y[i] / unit);
    text += item;
  }
  return text;
}

inline std::string hex(float value) {
  char text[40];
  std::snprintf(text, sizeof text, "%a", value);
  return text;
}

inline void observe_alignment(Report& report) {
  auto& out = report.accumulator;
  const std::vector<int> depths = surviving_bits_by_position();
  const auto [least, most] = std::minmax_element(depths.begin(), depths.end());
  out.push_back({"bits kept inside a k16 step",
                 "least " + std::to_string(*least) + ", most " + std::to_string(*most) +
                     " over all positions of (1, -1, 2^-d); equal means one sum of 16"});
  if (*least != *most) {
    std::string map;
    for (size_t i = 0; i < depths.size(); ++i)
      map += (i % 30 == 0 ? " | " : " ") + std::to_string(depths[i]);
    out.push_back({"bits kept, by position", "for each i, each j, both l:" + map});
  }
  const auto bits = [&](const char* id, int depth) { out.push_back({id, std::to_string(depth)}); };
  bits("bits kept under a wider product", surviving_bits([](float s) {
         return Sum().put(0, 1.5f, 1.5f).put(1, -1.5f, 1.5f).put(2, s);
       }));
  bits("bits kept beside accumulator 1",
       surviving_bits([](float s) { return Sum().put(0, 1).put(16, s).put(20, -1); }));
  bits("bits of the accumulator kept beside 1",
       surviving_bits([](float s) { return Sum().put(0, s).put(16, 1).put(20, -1); }));
  bits("bits stored between two steps",
       surviving_bits([](float s) { return Sum().put(0, 1).put(16, s).put(32, -1); }));
  bits("bits kept beside 0 * 2^127, scaled 2^-20",
       surviving_bits([](float s) { return Sum().put(0, 0, 0x1p127f).put(1, s * 0x1p-20f); }));
}

inline void observe_rounding(Report& report) {
  auto& out = report.accumulator;
  const int depth = surviving_bits([](float s) { return Sum().put(0, 1).put(1, -1).put(2, s); });
  const float last = std::ldexp(1.0f, -depth);
  const std::vector<float> parts = {0.5f,  0.75f,  1.25f,  1.5f,  1.75f,
                                    -0.5f, -0.75f, -1.25f, -1.5f, -1.75f};
  std::vector<Sum> addends, results, negative_results, carried;
  for (const float part : parts) {
    addends.push_back(Sum().put(0, 1).put(1, -1).put(2, part * last));
    results.push_back(Sum().put(0, 1).put(1, part * 0x1p-23f));
    negative_results.push_back(Sum().put(0, -1).put(1, part * 0x1p-23f));
    carried.push_back(Sum().put(0, 1).put(16, part * 0x1p-23f));
  }
  const auto minus = [](std::vector<float> values, float one) {
    for (float& v : values) v -= one;  // exact
    return values;
  };
  out.push_back({"1 - 1 + x, in last kept bits", mapped(parts, run_sums(addends), last)});
  out.push_back({"1 + x, in 2^-23", mapped(parts, minus(run_sums(results), 1), 0x1p-23f)});
  out.push_back(
      {"-1 + x, in 2^-23", mapped(parts, minus(run_sums(negative_results), -1), 0x1p-23f)});
  out.push_back(
      {"accumulator 1, then x, in 2^-23", mapped(parts, minus(run_sums(carried), 1), 0x1p-23f)});
  const float many = run_sums({[] {
    Sum sum;
    sum.put(0, 1);
    for (int k = 1; k < 16; ++k) sum.put(k, 0x1p-24f);
    return sum;
  }()})[0];
  out.push_back({"1 + 15 * 2^-24 in one step, in 2^-24",
                 std::to_string((many - 1.0f) / 0x1p-24f) + " (14 when summed before rounding)"});
}

inline void observe_small_values(Report& report) {
  auto& out = report.accumulator;
  const std::vector<float> values = run_sums({
      Sum().put(0, 0x1p-130f),                         // subnormal input
      Sum().put(0, 0x1p-70f, 0x1p-70f),                // subnormal product
      Sum().put(0, 0x1p-70f, 0x1p-70f).put(16, 0, 1),  // carried over steps
      Sum().put(0, 0x1p-75f, 0x1p-75f),                // half the least subnormal
      Sum().put(0, 0x1p-75f, 0x1p-75f).put(1, 0x1p-75f, 0x1p-75f),
      Sum().put(0, 0x1p-75f, 0x1p-75f).put(16, 0x1p-75f, 0x1p-75f),
      Sum().put(0, 0x1p-130f, 0x1p10f),
      Sum().put(0, 3).put(1, -3),
  });
  out.push_back({"2^-130 * 1", hex(values[0])});
  out.push_back({"2^-70 * 2^-70", hex(values[1])});
  out.push_back({"2^-140 in the accumulator", hex(values[2])});
  out.push_back({"2^-150", hex(values[3])});
  out.push_back({"2^-150 + 2^-150 in one step", hex(values[4])});
  out.push_back({"2^-150 + 2^-150 in two steps", hex(values[5])});
  out.push_back({"2^-130 * 2^10", hex(values[6])});
  out.push_back({"3 - 3", hex(values[7])});

  Sum zeros;
  for (float& a : zeros.a) a = -0.0f;
  out.push_back({"48 times -0, added to zeroed d", hex(run_sums({zeros})[0])});
  out.push_back({"48 times -0, first step overwrites",
                 hex(run_sums({zeros}, launch_product<8, Overwriting>)[0])});
}

// One set of operands with the product that the device made of them.
struct ModelCase {
  Operands operands;
  std::vector<float> d;  // [64, 256]
  const char* name;
};

// How many of n_outputs outputs, spread over the tile, the model gives to the bit.
inline int count_equal(const AccumulatorModel& model, const ModelCase& c, int k, int n_outputs) {
  int n_equal = 0;
  std::vector<float> a(k), b(k);
  for (int i = 0; i < n_outputs; ++i) {
    const int m = i * 37 % 64, n = (i * 101 + i / 64) % kColumns;
    for (int j = 0; j < k; ++j) {
      a[j] = __bfloat162float(c.operands.a[size_t(m) * c.operands.k + j]);
      b[j] = __bfloat162float(c.operands.b[size_t(n) * c.operands.k + j]);
    }
    float accumulator = 0;
    for (int j = 0; j < k; j += 16) accumulator = model.step(accumulator, &a[j], &b[j]);
    n_equal += accumulator == c.d[size_t(m) * kColumns + n];
  }
  return n_equal;
}

inline int count_equal(const AccumulatorModel& model, const std::vector<ModelCase>& cases,
                       int n_outputs) {
  int n_equal = 0;
  for (const ModelCase& c : cases) n_equal += count_equal(model, c, c.operands.k, n_outputs);
  return n_equal;
}

// Scores every model on a few outputs, the best of them on many, and reports the winner.
inline void find_model(const std::vector<ModelCase>& cases, Report& report) {
  constexpr int kFew = 24, kMany = 4096;
  std::vector<AccumulatorModel> models = all_models(), finalists;
  std::vector<int> scores;
  for (const AccumulatorModel& model : models) scores.push_back(count_equal(model, cases, kFew));
  const int best_few = *std::max_element(scores.begin(), scores.end());
  for (size_t i = 0; i < models.size() && finalists.size() < 24; ++i)
    if (scores[i] == best_few) finalists.push_back(models[i]);

  AccumulatorModel best;
  int best_score = -1, n_best = 0;
  for (const AccumulatorModel& model : finalists) {
    const int score = count_equal(model, cases, kMany / int(finalists.size()) + 64);
    n_best = score == best_score ? n_best + 1 : score > best_score ? 1 : n_best;
    if (score > best_score) best = model, best_score = score;
  }
  auto& out = report.accumulator;
  out.push_back({"model", best.text()});
  out.push_back({"models tried, equal in the first round, equal at the end",
                 std::to_string(models.size()) + ", " + std::to_string(finalists.size()) + ", " +
                     std::to_string(n_best)});
  for (const ModelCase& c : cases)
    out.push_back({std::string("model gives the bits of ") + c.name,
                   std::to_string(count_equal(best, c, c.operands.k, kMany)) + " of " +
                       std::to_string(kMany) + " outputs, k " + std::to_string(c.operands.k)});
}

}  // namespace roost::laws
