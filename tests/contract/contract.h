// The kernel contract harness: guarded memory, fills, bounds, equal bits and planted faults, the
// same for every op and every backend.
//
// An op's test describes itself as a Suite over a Case (plain values, copyable), and then says
//   EXPECT_EQ(contract::kernel_keeps_contract(suite, cases, backends), "");
//   EXPECT_EQ(contract::bits_are_the_rows_own(suite, cases, backends), "");
//   EXPECT_EQ(contract::faults_not_seen(suite, cases, backends[0], faults), "");
// Every function returns what is wrong, or nothing.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <deque>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "device/arena.h"
#include "device/cpu/thread_pool.h"
#include "ops/backend.h"
#include "tensor/quant_layout.h"
#include "tensor/tensor.h"

namespace roost::contract {

// ---- Values -------------------------------------------------------------------------------------

enum class Fill {
  kNormal,       // about N(0, 1)
  kTiny,         // the same times 1e-4
  kHuge,         // the same times 1e4
  kCancelling,   // neighbours of almost opposite value: sums lose most of their digits
  kCoordinates,  // each value encodes its own index, so that a misplaced one names itself
};
inline constexpr Fill kFills[] = {Fill::kNormal, Fill::kTiny, Fill::kHuge, Fill::kCancelling,
                                  Fill::kCoordinates};
std::string name_of(Fill fill);

// n values, all of them exactly representable as bf16.
std::vector<double> values(Fill fill, int64_t n, uint64_t seed);
std::vector<double> uniform(double low, double high, int64_t n, uint64_t seed);  // bf16 values too

// The formats a weight matrix can have.
struct MatrixFormat {
  QuantMatrix::Format format = QuantMatrix::Format::kAffine;
  int bits = 4, group = 64;
  DType dtype = DType::kBF16;
};
std::vector<MatrixFormat>
all_formats();  // 6 widths x 3 groups x {bf16, f32} scales, plain bf16 and f32
std::string name_of(const MatrixFormat& format);  // "q4g64-bf16"

// A weight matrix as values, so that a fault can spoil it.
struct MatrixValues {
  MatrixFormat format;
  int64_t n_out = 0, n_in = 0;
  std::vector<uint32_t> codes;         // kAffine: [n_out][n_in]
  std::vector<double> scales, biases;  // kAffine: [n_out][n_in / group]
  std::vector<double> plain;           // kPlain: [n_out][n_in]

  double at(int64_t row, int64_t col) const;
  double magnitude(int64_t row, int64_t col) const;  // |scale·code| + |bias|; |w| when plain
  MatrixValues rows(int64_t begin, int64_t n) const;
};
// Weights of about `size`, with scales of both signs. n_in must be a multiple of the group.
MatrixValues matrix_values(const MatrixFormat& format, int64_t n_out, int64_t n_in, Fill fill,
                           uint64_t seed, double size = 0.1);

// ---- Memory -------------------------------------------------------------------------------------

inline constexpr size_t kGuardBytes = 256;  // in front of and behind each tensor

// The tensors of one call. Each lies between guards; outputs start as NaN (integers as a pattern
// that is no answer); inputs are compared after the call.
class Memory {
 public:
  // kWide: outputs and in-out tensors of type bf16 become float64, so that the reference hands out
  // the value in front of its last rounding. Inputs keep their type.
  enum class Mode { kStored, kWide };
  explicit Memory(Mode mode = Mode::kStored) : mode_(mode) {}
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;

  Tensor input(DType dtype, const Shape& shape, std::span<const double> values);
  Tensor output(DType dtype, const Shape& shape);
  Tensor in_out(DType dtype, const Shape& shape, std::span<const double> values);
  // At an odd address when misaligned: checkpoint files do not align.
  QuantMatrix matrix(const MatrixValues& values, bool misaligned = true);
  // A list that the op borrows, kept as long as the memory.
  template <class T>
  std::span<const T> list(std::vector<T> items) {
    auto kept = std::make_shared<std::vector<T>>(std::move(items));
    lists_.push_back(kept);
    return {kept->data(), kept->size()};
  }

  // Names the first guard or input that was written to; empty when all are whole.
  std::string damage() const;
  // The first output whose bytes differ from those of the same call laid out in `other`.
  std::string difference(const Memory& other) const;
  Mode mode() const { return mode_; }

 private:
  enum class Kind { kInput, kOutput };
  struct Block {
    Kind kind;
    size_t offset, n_bytes;
    std::vector<std::byte> bytes;     // guard, data, guard
    std::vector<std::byte> original;  // of an input
    std::byte* data() { return bytes.data() + offset; }
    const std::byte* data() const { return bytes.data() + offset; }
  };
  Block& add(Kind kind, size_t n_bytes, size_t skew);
  const std::byte* keep_input(std::span<const std::byte> bytes, size_t skew);
  Tensor tensor(Block& block, DType dtype, const Shape& shape, std::span<const double> values);

  Mode mode_;
  std::deque<Block> blocks_;  // addresses stay
  std::vector<std::shared_ptr<void>> lists_;
};

// ---- Judging ------------------------------------------------------------------------------------

// Gathers the comparisons of one call and what they found.
class Judge {
 public:
  using Bound = std::function<double(int64_t i)>;
  // |got[i] - exact[i]| <= bound(i); NaN only where exact is NaN.
  void near(const std::string& name, const Tensor& got, const Tensor& exact, const Bound& bound);
  void equal(const std::string& name, const Tensor& got, const Tensor& exact);
  void fail(const std::string& what);
  bool is_ok() const { return report_.empty(); }
  const std::string& report() const { return report_; }
  double worst() const { return worst_; }  // largest error as a share of its bound

 private:
  std::string report_;
  double worst_ = 0;
};

// "" when row i of a and row j of b (outermost dimension) are the same bytes.
std::string row_difference(const Tensor& a, int64_t i, const Tensor& b, int64_t j);

// ---- The two sides ------------------------------------------------------------------------------

// A backend's kernel of one op, and the rules by which the reference must compute to be comparable.
template <class Op>
struct Backend {
  std::string name;
  std::function<void(const Op&)> run;
  ReferenceRules rules;
};

// The CPU kernels on n threads. Scratch is filled with NaN before each call, so that no result can
// come from what an earlier call left there.
class CpuMachine {
 public:
  explicit CpuMachine(int n_threads, size_t workspace_bytes = size_t{8} << 20)
      : pool_(n_threads), workspace_(workspace_bytes) {}
  template <class Op>
  Backend<Op> backend(void (*kernel)(const Op&, CpuContext&)) {
    return {"cpu, " + std::to_string(pool_.n_threads()) + " threads",
            [this, kernel](const Op& op) {
              spoil_workspace();
              CpuContext context{pool_, workspace_};
              kernel(op, context);
            },
            ReferenceRules{true, ProductRule::kAligned16}};
  }

 private:
  void spoil_workspace();
  ThreadPool pool_;
  Arena workspace_;
};

// What a test tells the harness of its op.
template <class Op, class Case>
struct Suite {
  std::function<std::string(const Case&)> name;
  // Lays the case out and returns the op over it. Called for the kernel (kStored) and by the
  // judge for the reference (kWide).
  std::function<Op(const Case&, Memory&)> arrange;
  // Compares what a kernel wrote with the reference under `rules`, by the bound of the contract.
  std::function<void(const Case&, const Op& got, const ReferenceRules& rules, Judge&)> judge;
  // For the law of equal bits; left out by ops whose rows are not independent calls (those write
  // their own regroupings with row_difference).
  std::function<int64_t(const Case&)> n_rows;
  std::function<Case(const Case&, std::span<const int64_t> rows)>
      select;                                                 // those rows, in that order
  std::function<std::vector<Tensor>(const Op&)> row_outputs;  // outermost dimension: rows
};

// A wrong variant of the kernel, made by spoiling what a right one is given or has written.
template <class Op, class Case>
struct Fault {
  std::string name;
  std::function<void(Case&)> before;     // spoils the inputs, or none
  std::function<void(const Op&)> after;  // spoils the outputs, or none

  Fault(std::string fault_name, std::function<void(Case&)> spoil_inputs,
        std::function<void(const Op&)> spoil_outputs = {})
      : name(std::move(fault_name)),
        before(std::move(spoil_inputs)),
        after(std::move(spoil_outputs)) {}
};

// ---- The checks ---------------------------------------------------------------------------------

// Runs one case; what is wrong with it, or nothing. The verdict is against `good`.
template <class Op, class Case>
std::string verdict(const Suite<Op, Case>& suite, const Case& run, const Case& good,
                    const Backend<Op>& backend, const std::function<void(const Op&)>& after,
                    double* worst = nullptr) {
  Memory memory;
  const Op op = suite.arrange(run, memory);
  check(op);
  backend.run(op);
  if (after) after(op);
  Judge judge;
  if (const std::string damage = memory.damage(); !damage.empty()) judge.fail(damage);
  suite.judge(good, op, backend.rules, judge);
  if (worst != nullptr) *worst = std::max(*worst, judge.worst());
  if (judge.is_ok()) return "";
  return suite.name(good) + " on " + backend.name + ": " + judge.report() + "\n";
}

// Takes lines on how near kernels came to their bounds, where a program wants them.
inline std::function<void(const std::string&)>& note_taker() {
  static std::function<void(const std::string&)> taker;
  return taker;
}
template <class Op, class Case>
std::string worst_note(const Suite<Op, Case>& suite, const Backend<Op>& backend, double worst,
                       const Case* where) {
  return backend.name + ": at most " + std::to_string(worst) + " of the bound" +
         (where != nullptr ? ", in \"" + suite.name(*where) + "\"" : "");
}

// Every case on every backend is within the bound, writes all it must and nothing else.
template <class Op, class Case>
std::string kernel_keeps_contract(const Suite<Op, Case>& suite, const std::vector<Case>& cases,
                                  const std::vector<Backend<Op>>& backends,
                                  double* worst = nullptr) {
  std::string report;
  int n_failed = 0;
  for (const Backend<Op>& backend : backends) {
    double worst_here = 0;
    const Case* where = nullptr;
    for (const Case& c : cases) {
      double of_case = 0;
      const std::string wrong = verdict<Op, Case>(suite, c, c, backend, nullptr, &of_case);
      if (of_case > worst_here) worst_here = of_case, where = &c;
      if (!wrong.empty() && ++n_failed <= 8) report += wrong;
    }
    if (worst != nullptr) *worst = std::max(*worst, worst_here);
    if (note_taker()) note_taker()(worst_note(suite, backend, worst_here, where));
  }
  if (n_failed > 8) report += std::to_string(n_failed) + " cases failed\n";
  return report;
}

// The groupings of n rows that a law check tries: alone, doubled, reversed, shifted, a part.
std::vector<std::vector<int64_t>> regroupings(int64_t n_rows);

template <class Op, class Case>
std::string regrouped_difference(const Suite<Op, Case>& suite, const Case& c, const Op& whole,
                                 const Backend<Op>& backend) {
  for (const std::vector<int64_t>& rows : regroupings(suite.n_rows(c))) {
    Memory memory;
    const Case part = suite.select(c, rows);
    const Op op = suite.arrange(part, memory);
    backend.run(op);
    const std::vector<Tensor> a = suite.row_outputs(op), b = suite.row_outputs(whole);
    for (size_t o = 0; o < a.size(); ++o) {
      if (!a[o].exists()) continue;
      for (size_t i = 0; i < rows.size(); ++i) {
        const std::string wrong = row_difference(a[o], static_cast<int64_t>(i), b[o], rows[i]);
        if (!wrong.empty())
          return "output " + std::to_string(o) + ", among " + std::to_string(rows.size()) +
                 " rows: " + wrong;
      }
    }
  }
  return "";
}

// Law 1: a second run, every other backend of the list (other thread counts), and the row in any
// other company give the same bits.
template <class Op, class Case>
std::string bits_are_the_rows_own(const Suite<Op, Case>& suite, const std::vector<Case>& cases,
                                  const std::vector<Backend<Op>>& backends) {
  for (const Case& c : cases) {
    Memory first;
    const Op whole = suite.arrange(c, first);
    backends[0].run(whole);
    for (const Backend<Op>& backend : backends) {
      Memory again;
      backend.run(suite.arrange(c, again));
      const std::string place = suite.name(c) + " on " + backend.name + ": ";
      if (const std::string wrong = again.difference(first); !wrong.empty())
        return place + "another run differs: " + wrong;
      if (!suite.select) continue;
      if (const std::string wrong = regrouped_difference(suite, c, whole, backend); !wrong.empty())
        return place + wrong;
    }
  }
  return "";
}

// The test of the test: names each fault that no case makes visible.
template <class Op, class Case>
std::string faults_not_seen(const Suite<Op, Case>& suite, const std::vector<Case>& cases,
                            const Backend<Op>& backend,
                            const std::vector<Fault<Op, Case>>& faults) {
  std::string report;
  for (const Fault<Op, Case>& fault : faults) {
    bool is_seen = false;
    for (size_t i = 0; i < cases.size() && !is_seen; ++i) {
      Case bad = cases[i];
      if (fault.before) fault.before(bad);
      is_seen = !verdict<Op, Case>(suite, bad, cases[i], backend, fault.after).empty();
    }
    if (!is_seen) report += "blind to: " + fault.name + "\n";
  }
  if (faults.size() < 5) report += "fewer than five faults are planted\n";
  return report;
}

}  // namespace roost::contract
