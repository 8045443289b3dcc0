// The float64 reference of quant_linear.
#include <vector>

#include "ops/quant_linear/quant_linear.h"
#include "ops/reference.h"

namespace roost {
namespace {

// y[t, r] for the rows of `x`, given the way the product sees them, and row r of the matrix.
double dot(const std::vector<double>& x, int64_t t, const std::vector<double>& w) {
  const size_t n = w.size();
  const double* row = x.data() + static_cast<size_t>(t) * n;
  double sum = 0;
  for (size_t i = 0; i < n; ++i) sum += row[i] * w[i];
  return sum;
}

}  // namespace

void quant_linear_reference(const QuantLinear& op, const ReferenceRules& rules) {
  const int64_t n_rows = op.x.dim(0);
  const bool is_pair = op.epilogue == Epilogue::kSwiGlu;
  std::vector<double> w(static_cast<size_t>(op.x.dim(1))), w_up(w.size());
  for (int p = 0; p < (is_pair ? 1 : op.n_parts); ++p) {
    const LinearPart& part = op.parts[static_cast<size_t>(p)];
    const int64_t n_out = part.w->n_out;
    const std::vector<double> x = product_input(op.x, *part.w, rules);
    const std::vector<double> x_up =
        is_pair ? product_input(op.x, *op.parts[1].w, rules) : std::vector<double>();
    for (int64_t r = 0; r < n_out; ++r) {
      decode_row(*part.w, r, w, rules);
      if (is_pair) decode_row(*op.parts[1].w, r, w_up, rules);
      for (int64_t t = 0; t < n_rows; ++t) {
        const double y = dot(x, t, w);
        part.y.set(t * n_out + r, is_pair ? silu(y) * dot(x_up, t, w_up) : y);
      }
    }
  }
}

}  // namespace roost
