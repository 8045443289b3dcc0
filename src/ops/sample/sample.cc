// What sample demands of its arguments, and the noise of keyed draws.
#include "ops/sample/sample.h"

#include <cmath>

#include "base/check.h"
#include "ops/checks.h"
#include "ops/sample/gumbel.h"

namespace roost {

double gumbel_noise(uint64_t seed, int64_t position, int32_t id) {
  return GumbelRow::noise(GumbelRow(seed, position).bits(id));
}

void check(const Sample& op) {
  ROOST_CHECK(op.logits.exists() && op.logits.shape.rank() == 2 && op.logits.dim(0) >= 1);
  const int64_t n_rows = op.logits.dim(0), n_vocabulary = op.logits.dim(1);
  ROOST_CHECK(has(op.logits, DType::kF32, {n_rows, n_vocabulary}));
  ROOST_CHECK(has(op.tokens, DType::kI32, {n_rows}));
  ROOST_CHECK(op.params.size() == static_cast<size_t>(n_rows));
  ROOST_CHECK(op.masks.empty() || op.masks.size() == op.params.size());
  ROOST_CHECK(op.n_tokens >= 1 && op.n_tokens <= n_vocabulary && op.n_tokens <= INT32_MAX);
  for (const SampleParams& p : op.params) {
    ROOST_CHECK(std::isfinite(p.temperature) && p.temperature >= 0 && p.top_k >= 0);
    ROOST_CHECK(p.top_p >= 0 && p.top_p <= 1 && p.min_p >= 0 && p.min_p <= 1);
  }
}

}  // namespace roost
