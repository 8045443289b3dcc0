// Establishes on the device in hand the laws of the tensor core that every matrix product relies
// on: an output's bits are a function of its row of A, its column of B and the order of the k16
// steps.
//
//   mma_law_test [--out FILE] [--laws-only]
//
// Prints a table, writes it as JSON, and exits with 1 when a law that roost relies on does not
// hold.

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <string>
#include <vector>

#include "laws/cuda/accumulator.cuh"
#include "laws/cuda/device_array.cuh"
#include "laws/cuda/fills.h"
#include "laws/cuda/products.cuh"
#include "laws/cuda/rates.h"
#include "laws/cuda/report.h"

namespace roost::laws {
namespace {

struct Width {
  int n;
  Launch from_registers, from_shared;
};

template <int... kN>
std::vector<Width> widths_of() {
  return {Width{kN, launch_product<kN, FromRegisters>, launch_product<kN, FromShared>}...};
}

std::vector<Width> all_widths() {
  return widths_of<8, 16, 24, 32, 48, 64, 96, 128, 192, 256>();
}
std::vector<Width> some_widths() {
  return widths_of<8, 64, 256>();
}

// Operands and their product by the form that all others are held against: N = 256, A from
// registers, one k16 step a group.
struct Case {
  std::string name;
  Operands operands;
  std::vector<float> d;  // [64, 256]

  float at(int m, int n) const { return d[size_t(m) * kColumns + n]; }
};

std::string place(const Case& c, const char* form, int n_width, int m, int n) {
  return c.name + ", " + form + ", N " + std::to_string(n_width) + ", row " + std::to_string(m) +
         ", column " + std::to_string(n);
}

// [n_tiles, 64, N], where what the kernel leaves unwritten stays NaN.
std::vector<float> run(Launch launch, int n_width, int k, const std::vector<Bf16>& a,
                       const std::vector<Bf16>& b, int n_tiles, size_t a_stride, size_t b_stride) {
  const DeviceArray<Bf16> device_a(a), device_b(b);
  const DeviceArray<float> d(size_t(n_tiles) * kRows * n_width);
  cuda::check(cudaMemset(d.data(), 0xff, d.size() * sizeof(float)));
  launch({device_a.data(), device_b.data(), d.data(), k, a_stride, b_stride}, n_tiles, nullptr);
  return d.read();
}

std::vector<float> run(Launch launch, int n_width, const Operands& x) {
  return run(launch, n_width, x.k, x.a, x.b, kColumns / n_width, 0, size_t(n_width) * x.k);
}

std::vector<float> base_product(const Operands& x) {
  return run(launch_product<256, FromRegisters>, 256, x);
}

std::vector<Case> make_cases(int k, int n_seeds) {
  std::vector<Case> cases;
  for (const Fill fill : kFills)
    for (int seed = 1; seed <= n_seeds; ++seed) {
      Operands operands = make_operands(fill, k, uint64_t(seed) * 1000 + uint64_t(k));
      std::vector<float> d = base_product(operands);
      cases.push_back({std::string(name_of(fill)) + " " + std::to_string(seed), std::move(operands),
                       std::move(d)});
    }
  return cases;
}

// Compares all tiles of a product that cuts B's columns into tiles of n_width.
void compare_tiles(Law& law, const Case& c, const char* form, int n_width,
                   const std::vector<float>& d) {
  for (int tile = 0; tile < kColumns / n_width; ++tile)
    for (int m = 0; m < kRows; ++m)
      for (int n = 0; n < n_width; ++n)
        law.compare(d[(size_t(tile) * kRows + m) * n_width + n], c.at(m, tile * n_width + n),
                    [&] { return place(c, form, n_width, m, n); });
}

// The laws compare forms with each other; this one says that what they compare is the product.
Law products_are_right(const std::vector<Case>& cases) {
  Law law{"R0", "products agree with float64: error <= K 2^-22 sum|ab| + K 2^-140", true};
  for (const Case& c : cases) {
    const int k = c.operands.k;
    for (int m = 0; m < kRows; ++m)
      for (int n = m % 8; n < kColumns; n += 8) {
        double sum = 0, size = 0;
        for (int j = 0; j < k; ++j) {
          const double p = double(__bfloat162float(c.operands.a[size_t(m) * k + j])) *
                           __bfloat162float(c.operands.b[size_t(n) * k + j]);
          sum += p;
          size += std::fabs(p);
        }
        const double bound = k * (std::ldexp(size, -22) + 0x1p-140);
        law.expect(std::fabs(c.at(m, n) - sum) <= bound, place(c, "base", 256, m, n));
      }
  }
  return law;
}

Law width_changes_no_bit(const std::vector<Case>& cases) {
  Law law{"L1", "an output's bits do not depend on N in {8 16 24 32 48 64 96 128 192 256}", true};
  for (const Case& c : cases)
    for (const Width& w : all_widths())
      compare_tiles(law, c, "A from registers", w.n, run(w.from_registers, w.n, c.operands));
  return law;
}

Law source_of_a_changes_no_bit(const std::vector<Case>& cases) {
  Law law{"L3", "A from shared memory gives the bits of A from registers, every N", true};
  for (const Case& c : cases)
    for (const Width& w : all_widths())
      compare_tiles(law, c, "A from shared memory", w.n, run(w.from_shared, w.n, c.operands));
  return law;
}

std::vector<Bf16> reordered(const std::vector<Bf16>& lines, int k, const std::vector<int>& order) {
  std::vector<Bf16> out(lines.size());
  for (size_t i = 0; i < order.size(); ++i)
    std::copy_n(lines.begin() + size_t(order[i]) * k, k, out.begin() + i * k);
  return out;
}

Law place_changes_no_bit(const std::vector<Case>& cases) {
  Law law{"L2a", "nor on its row m or its column n: both sides shuffled", true};
  Draw draw(7);
  for (const Case& c : cases)
    for (const Width& w : some_widths())
      for (const bool is_shared : {false, true}) {
        const int k = c.operands.k;
        const std::vector<int> rows = shuffled_indexes(kRows, draw);
        const std::vector<int> columns = shuffled_indexes(kColumns, draw);
        const Operands moved{k, reordered(c.operands.a, k, rows),
                             reordered(c.operands.b, k, columns)};
        const std::vector<float> d = run(is_shared ? w.from_shared : w.from_registers, w.n, moved);
        for (int m = 0; m < kRows; ++m)
          for (int n = 0; n < kColumns; ++n)
            law.compare(d[(size_t(n / w.n) * kRows + m) * w.n + n % w.n], c.at(rows[m], columns[n]),
                        [&] { return place(c, "shuffled", w.n, m, n); });
      }
  return law;
}

// What stands in the other lines.
enum class Neighbours { kNotFinite, kHuge, kZero };

std::vector<Bf16> values_of(Neighbours kind) {
  constexpr float kLargest = 0x1.fep127f;  // of bf16
  if (kind == Neighbours::kZero) return to_bf16({0.0f, -0.0f});
  if (kind == Neighbours::kHuge) return to_bf16({kLargest, -kLargest});
  return to_bf16({NAN, INFINITY, -INFINITY, kLargest, -kLargest});
}

// n_tiles copies of lines, where copy i keeps only line i and has neighbours in all others.
std::vector<Bf16> one_line_kept(const std::vector<Bf16>& lines, int n_lines, int k, Neighbours kind,
                                Draw& draw) {
  const size_t n_tile = size_t(n_lines) * k;
  const std::vector<Bf16> values = values_of(kind);
  std::vector<Bf16> out(n_tile * n_lines);
  for (int i = 0; i < n_lines; ++i) {
    Bf16* tile = out.data() + i * n_tile;
    for (size_t at = 0; at < n_tile; ++at) tile[at] = values[draw.below(int(values.size()))];
    std::copy_n(lines.begin() + size_t(i) * k, k, tile + size_t(i) * k);
  }
  return out;
}

void compare_kept_columns(Law& law, const Case& c, Launch launch, int n_width, Neighbours kind) {
  Draw draw(11);
  const int k = c.operands.k;
  const std::vector<Bf16> b = one_line_kept(c.operands.b, n_width, k, kind, draw);
  const std::vector<float> d =
      run(launch, n_width, k, c.operands.a, b, n_width, 0, size_t(n_width) * k);
  for (int n = 0; n < n_width; ++n)
    for (int m = 0; m < kRows; ++m)
      law.compare(d[(size_t(n) * kRows + m) * n_width + n], c.at(m, n),
                  [&] { return place(c, "one column kept", n_width, m, n); });
}

void compare_kept_rows(Law& law, const Case& c, Launch launch, int n_width, Neighbours kind) {
  Draw draw(13);
  const int k = c.operands.k;
  const std::vector<Bf16> a = one_line_kept(c.operands.a, kRows, k, kind, draw);
  const std::vector<float> d =
      run(launch, n_width, k, a, c.operands.b, kRows, size_t(kRows) * k, 0);
  for (int m = 0; m < kRows; ++m)
    for (int n = 0; n < n_width; ++n)
      law.compare(d[(size_t(m) * kRows + m) * n_width + n], c.at(m, n),
                  [&] { return place(c, "one row kept", n_width, m, n); });
}

Law neighbours_change_no_bit(const std::vector<Case>& cases, Law law,
                             std::initializer_list<Neighbours> kinds) {
  for (const Case& c : cases)
    for (const Width& w : some_widths())
      for (const Launch launch : {w.from_registers, w.from_shared})
        for (const Neighbours kind : kinds) {
          compare_kept_columns(law, c, launch, w.n, kind);
          compare_kept_rows(law, c, launch, w.n, kind);
        }
  return law;
}

// Columns 64 j to 64 j + 63 of B take the side of the rows, n_width rows of A that of the columns.
Law swapped_operands_change_no_bit(const std::vector<Case>& cases) {
  Law law{"L4", "exchanging the operands (A B^T against B A^T) changes no bit", true};
  for (const Case& c : cases)
    for (const Width& w : widths_of<8, 16, 32, 64>())
      for (const Launch launch : {w.from_registers, w.from_shared})
        for (int j = 0; j < kColumns / kRows; ++j) {
          const int k = c.operands.k;
          const auto first = c.operands.b.begin() + size_t(j) * kRows * k;
          const std::vector<Bf16> rows(first, first + size_t(kRows) * k);
          const std::vector<float> d =
              run(launch, w.n, k, rows, c.operands.a, kRows / w.n, 0, size_t(w.n) * k);
          for (int m = 0; m < kRows; ++m)
            for (int n = 0; n < kRows; ++n)
              law.compare(d[(size_t(m / w.n) * kRows + n) * w.n + m % w.n], c.at(m, j * kRows + n),
                          [&] { return place(c, "exchanged", w.n, m, j * kRows + n); });
        }
  return law;
}

struct NamedForm {
  const char* name;
  int n_width;
  Launch launch;
};

template <typename Issue>
void add_widths(std::vector<NamedForm>& forms, const char* name) {
  forms.push_back({name, 8, launch_product<8, Issue>});
  forms.push_back({name, 64, launch_product<64, Issue>});
  forms.push_back({name, 256, launch_product<256, Issue>});
}

Law forms_change_no_bit(const std::vector<Case>& cases, Law law,
                        const std::vector<NamedForm>& forms) {
  for (const Case& c : cases)
    for (const NamedForm& f : forms)
      compare_tiles(law, c, f.name, f.n_width, run(f.launch, f.n_width, c.operands));
  return law;
}

Law grouping_changes_no_bit(const std::vector<Case>& cases) {
  std::vector<NamedForm> forms;
  add_widths<FourInOneGroup>(forms, "four steps in one group");
  add_widths<FourGroupsInFlight>(forms, "four groups in flight");
  add_widths<TwoGroupsOfTwo>(forms, "two groups of two steps");
  add_widths<FourFromSharedInOneGroup>(forms, "four steps in one group, A shared");
  add_widths<FourFromSharedInFlight>(forms, "four groups in flight, A shared");
  forms.push_back({"sixteen steps in one group", 64, launch_product<64, SixteenInOneGroup>});
  return forms_change_no_bit(
      cases, {"L5", "one k16 step a group, several, or several groups in flight: equal", true},
      forms);
}

Law swizzle_changes_no_bit(const std::vector<Case>& cases) {
  std::vector<NamedForm> forms;
  add_widths<SwizzledB>(forms, "B swizzled by 128 bytes");
  add_widths<SwizzledBoth>(forms, "A and B swizzled by 128 bytes");
  return forms_change_no_bit(
      cases, {"X1", "operands swizzled by 128 bytes: equal to operands in cores", false}, forms);
}

Law major_changes_no_bit(const std::vector<Case>& cases) {
  std::vector<NamedForm> forms;
  add_widths<MnMajorB>(forms, "B with n innermost");
  return forms_change_no_bit(
      cases, {"X3", "B with n innermost in its cores: equal to B with k innermost", false}, forms);
}

Law first_step_may_overwrite(const std::vector<Case>& cases) {
  std::vector<NamedForm> forms;
  add_widths<Overwriting>(forms, "first step overwrites");
  return forms_change_no_bit(
      cases, {"X2", "a first step that overwrites d = one that adds to zeroed d", false}, forms);
}

// Zero k16 steps before, between and after: on A's side, on B's side, or on both.
Law zero_steps_change_no_bit(const std::vector<Case>& cases) {
  Law law{"L6b", "k16 steps of zeros (in A, in B, in both, of either sign) are exact", true};
  for (const Case& c : cases)
    for (int variant = 0; variant < 3; ++variant) {
      Draw draw(17 + uint64_t(variant));
      const int k = c.operands.k, wide = 2 * k;
      Operands padded{wide, std::vector<Bf16>(size_t(kRows) * wide),
                      std::vector<Bf16>(size_t(kColumns) * wide)};
      const auto widen = [&](const std::vector<Bf16>& from, std::vector<Bf16>& to, bool is_zero) {
        for (size_t i = 0; i < to.size(); ++i) {
          const size_t line = i / wide, step = i % wide / 16;
          // Every other step is the case's own; the rest is padding.
          const float pad = is_zero ? (draw.below(2) != 0 ? 0.0f : -0.0f) : draw.bell();
          to[i] = step % 2 == 1 ? from[line * k + step / 2 * 16 + i % 16] : __float2bfloat16(pad);
        }
      };
      widen(c.operands.a, padded.a, variant != 1);
      widen(c.operands.b, padded.b, variant != 0);
      compare_tiles(law, c, "zero steps between", 256, base_product(padded));
    }
  return law;
}

Law warp_product_agrees(const std::vector<Case>& cases) {
  Law law{"L7", "mma.sync m16n8k16 gives the bits of wgmma", false};
  for (const Case& c : cases)
    compare_tiles(law, c, "mma.sync", 64, run(launch_warp_product<64>, 64, c.operands));
  return law;
}

// Counts words of d [n_tiles, n_tile] that differ from d's first tile.
__global__ void count_different_kernel(const uint32_t* d, size_t n_tile, size_t n_all,
                                       unsigned long long* n_different) {
  const size_t step = size_t(gridDim.x) * blockDim.x;
  for (size_t i = size_t(blockIdx.x) * blockDim.x + threadIdx.x; i < n_all; i += step)
    if (d[i] != d[i % n_tile]) atomicAdd(n_different, 1ull);
}

// Runs one tile on every multiprocessor many times over, `times` launches, also under other load.
Law repeats_change_no_bit(const std::vector<Case>& cases, int n_multiprocessors, Report& report) {
  Law law{"L8", "equal on every multiprocessor, in every run, idle and beside other load", true};
  const int n_tiles = n_multiprocessors * 8;
  constexpr int kTimes = 8, kN = 256;
  Load load;
  int n_loaded = 0;
  for (const Case& c : cases) {
    const DeviceArray<Bf16> a(c.operands.a), b(c.operands.b);
    const DeviceArray<float> d(size_t(n_tiles) * kRows * kN);
    const DeviceArray<unsigned long long> n_different(std::vector<unsigned long long>{0});
    cudaStream_t stream;
    cuda::check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    for (int time = 0; time < 2 * kTimes; ++time) {
      const bool is_loaded = time >= kTimes;
      if (time == kTimes) load.start();
      const Launch launch = time % 2 == 0 ? launch_product<kN, FourFromSharedInFlight>
                                          : launch_product<kN, FourInOneGroup>;
      cuda::check(cudaMemsetAsync(d.data(), 0xff, d.size() * sizeof(float), stream));
      launch({a.data(), b.data(), d.data(), c.operands.k, 0, 0}, n_tiles, stream);
      count_different_kernel<<<n_multiprocessors, 256, 0, stream>>>(
          reinterpret_cast<uint32_t*>(d.data()), size_t(kRows) * kN, d.size(), n_different.data());
      cuda::check_launch();
      std::vector<float> first(size_t(kRows) * kN);
      cuda::check(cudaMemcpyAsync(first.data(), d.data(), first.size() * sizeof(float),
                                  cudaMemcpyDeviceToHost, stream));
      cuda::check(cudaStreamSynchronize(stream));
      n_loaded += is_loaded && load.is_running();
      compare_tiles(law, c, is_loaded ? "under load" : "alone", kN, first);
    }
    cuda::check(cudaStreamDestroy(stream));
    law.n_compared += uint64_t(2 * kTimes) * (n_tiles - 1) * kRows * kN;
    const uint64_t n = n_different.read()[0];
    law.n_different += n;
    if (n != 0 && law.first_difference.empty()) law.first_difference = c.name + ", between tiles";
  }
  report.device.push_back(
      {"launches of L8 with load running",
       std::to_string(n_loaded) + " of " + std::to_string(cases.size() * kTimes)});
  return law;
}

// The laws would hold for data that shows nothing: three wrong products must be seen as different.
Law planted_faults_are_seen(const std::vector<Case>& cases) {
  Law law{"F", "steps reversed, K cut in halves, one bit of one column: each is seen", true};
  for (const Case& c : cases) {
    if (c.name.rfind("normal", 0) != 0 && c.name.rfind("spread", 0) != 0) continue;
    const int k = c.operands.k;
    Operands reversed = c.operands, lower = c.operands, upper = c.operands, flipped = c.operands;
    const auto reverse_steps = [k](std::vector<Bf16>& to, const std::vector<Bf16>& from) {
      for (size_t i = 0; i < to.size(); ++i)
        to[i] = from[i / k * k + (k / 16 - 1 - i % k / 16) * 16 + i % 16];
    };
    reverse_steps(reversed.a, c.operands.a);
    reverse_steps(reversed.b, c.operands.b);
    for (size_t i = 0; i < lower.a.size(); ++i)
      (int(i % k) < k / 2 ? upper : lower).a[i] = __float2bfloat16(0.0f);
    // The largest value of column 5 moves by one last bit.
    Bf16* column = flipped.b.data() + size_t(5) * k;
    Bf16* largest = std::max_element(column, column + k, [](Bf16 x, Bf16 y) {
      return std::fabs(__bfloat162float(x)) < std::fabs(__bfloat162float(y));
    });
    *largest = __ushort_as_bfloat16(uint16_t(__bfloat16_as_ushort(*largest) ^ 1));

    const std::vector<float> d[] = {base_product(reversed), base_product(lower),
                                    base_product(upper), base_product(flipped)};
    int n_reversed = 0, n_halves = 0, n_flipped = 0, n_leaked = 0;
    for (size_t i = 0; i < c.d.size(); ++i) {
      n_reversed += d[0][i] != c.d[i];
      n_halves += d[1][i] + d[2][i] != c.d[i];
      (i % kColumns == 5 ? n_flipped : n_leaked) += d[3][i] != c.d[i];
    }
    law.expect(n_reversed > 1000, c.name + ": reversed steps are not seen");
    law.expect(n_halves > 1000, c.name + ": halves are not seen");
    law.expect(n_flipped > 8, c.name + ": a flipped bit is not seen");
    law.expect(n_leaked == 0, c.name + ": a flipped bit leaks into other columns");
  }
  return law;
}

std::vector<Observation> describe_device(const cudaDeviceProp& p) {
  int driver = 0, runtime = 0;
  cuda::check(cudaDriverGetVersion(&driver));
  cuda::check(cudaRuntimeGetVersion(&runtime));
  return {{"device", p.name},
          {"compute capability", std::to_string(p.major) + "." + std::to_string(p.minor)},
          {"multiprocessors", std::to_string(p.multiProcessorCount)},
          {"L2 bytes", std::to_string(p.l2CacheSize)},
          {"driver, runtime", std::to_string(driver) + ", " + std::to_string(runtime)}};
}

void check_laws(int n_multiprocessors, Report& report) {
  const std::vector<Case> longer = make_cases(1024, 2), shorter = make_cases(128, 1);
  std::vector<Law>& laws = report.laws;
  laws.push_back(products_are_right(longer));
  laws.push_back(planted_faults_are_seen(longer));
  laws.push_back(width_changes_no_bit(longer));
  laws.push_back(place_changes_no_bit(longer));
  laws.push_back(neighbours_change_no_bit(
      shorter, {"L2b", "nor on the other rows and columns: NaN, infinities, 2^127", true},
      {Neighbours::kNotFinite, Neighbours::kHuge}));
  laws.push_back(source_of_a_changes_no_bit(longer));
  laws.push_back(swapped_operands_change_no_bit(longer));
  laws.push_back(grouping_changes_no_bit(longer));
  laws.push_back(neighbours_change_no_bit(
      shorter, {"L6a", "zero rows and columns beside it change no bit", true},
      {Neighbours::kZero}));
  laws.push_back(zero_steps_change_no_bit(longer));
  laws.push_back(warp_product_agrees(longer));
  laws.push_back(swizzle_changes_no_bit(longer));
  laws.push_back(first_step_may_overwrite(longer));
  laws.push_back(major_changes_no_bit(longer));
  laws.push_back(repeats_change_no_bit(shorter, n_multiprocessors, report));
}

void study_accumulator(Report& report) {
  observe_alignment(report);
  observe_rounding(report);
  observe_small_values(report);
  std::vector<ModelCase> cases;
  for (const Fill fill : kFills) {
    Operands operands = make_operands(fill, 64, 5);
    std::vector<float> d = base_product(operands);
    cases.push_back({std::move(operands), std::move(d), name_of(fill)});
  }
  find_model(cases, report);
}

int run_all(const char* out, bool is_laws_only) {
  cudaDeviceProp properties;
  cuda::check(cudaGetDeviceProperties(&properties, 0));
  if (properties.major != 9) {
    std::fprintf(stderr, "mma_law_test: built for compute capability 9.0, this device has %d.%d\n",
                 properties.major, properties.minor);
    return 2;
  }
  Report report;
  report.device = describe_device(properties);
  const auto start = std::chrono::steady_clock::now();
  const auto note_time = [&](const char* part) {
    const std::chrono::duration<double> s = std::chrono::steady_clock::now() - start;
    report.figures.push_back({std::string("seconds until the end of ") + part, s.count(), "s"});
  };
  check_laws(properties.multiProcessorCount, report);
  note_time("the laws");
  study_accumulator(report);
  note_time("the accumulator's study");
  if (!is_laws_only) {
    for (const auto measure : {measure_bandwidth, measure_product_rates})
      for (const Figure& figure : measure()) report.figures.push_back(figure);
    note_time("the rates");
  }
  print(report);
  if (const auto& loss = cuda::card_loss()) {
    std::fprintf(stderr, "mma_law_test: %s\n", to_string(*loss).c_str());
    return 2;
  }
  if (out != nullptr && !write_json(report, out)) {
    std::fprintf(stderr, "mma_law_test: cannot write %s\n", out);
    return 2;
  }
  std::printf("\n%s\n", report.is_good() ? "all laws that roost relies on hold"
                                         : "A LAW THAT ROOST RELIES ON FAILS");
  return report.is_good() ? 0 : 1;
}

}  // namespace
}  // namespace roost::laws

int main(int n_args, char** args) {
  const char* out = nullptr;
  bool is_laws_only = false;
  for (int i = 1; i < n_args; ++i) {
    if (std::strcmp(args[i], "--laws-only") == 0) {
      is_laws_only = true;
    } else if (std::strcmp(args[i], "--out") == 0 && i + 1 < n_args) {
      out = args[++i];
    } else {
      std::fprintf(stderr, "usage: mma_law_test [--out FILE] [--laws-only]\n");
      return 2;
    }
  }
  return roost::laws::run_all(out, is_laws_only);
}
