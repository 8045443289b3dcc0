// What quant_linear demands of its arguments.
#include "ops/quant_linear/quant_linear.h"

#include "base/check.h"
#include "ops/checks.h"

namespace roost {

void check(const QuantLinear& op) {
  ROOST_CHECK(op.x.exists() && op.x.shape.rank() == 2 && op.x.dim(0) >= 1);
  const int64_t n_rows = op.x.dim(0), n_in = op.x.dim(1);
  ROOST_CHECK(has_activation(op.x, {n_rows, n_in}));
  ROOST_CHECK(op.n_parts >= 1 && op.n_parts <= QuantLinear::kPartsMax);
  for (int p = 0; p < op.n_parts; ++p) {
    const LinearPart& part = op.parts[static_cast<size_t>(p)];
    ROOST_CHECK(part.w != nullptr && is_sound(*part.w) && part.w->n_in == n_in);
    const Shape shape{n_rows, part.w->n_out};
    if (op.epilogue == Epilogue::kSwiGlu && p == 1) {
      ROOST_CHECK(!part.y.exists() && part.w->n_out == op.parts[0].w->n_out);
    } else {
      const bool is_unrounded = op.epilogue == Epilogue::kNone && has(part.y, DType::kF32, shape);
      ROOST_CHECK(is_unrounded || has_activation(part.y, shape));
    }
  }
  ROOST_CHECK(op.epilogue != Epilogue::kSwiGlu || op.n_parts == 2);
}

}  // namespace roost
