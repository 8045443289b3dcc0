#include "apps/random_steps.h"

#include <utility>

namespace roost {

RandomSteps::RandomSteps(int64_t vocabulary, std::vector<std::vector<int32_t>> page_tables,
                         Buffer logits)
    : vocabulary_(vocabulary),
      page_tables_(std::move(page_tables)),
      logits_(std::move(logits)),
      lengths_(page_tables_.size(), 0) {}

void RandomSteps::set_length(int32_t sequence, int64_t length) {
  lengths_[static_cast<size_t>(sequence)] = length;
}

void RandomSteps::run(Qwen35& model, ModelState& state, std::span<const Rows> rows,
                      bool has_logits) {
  std::vector<int32_t> tokens, positions, logit_rows;
  std::vector<RowSpan> spans;
  std::vector<DeltaSpan> delta;
  for (const auto& [sequence, n_rows] : rows) {
    int64_t& length = lengths_[static_cast<size_t>(sequence)];
    const auto first = static_cast<int32_t>(tokens.size()), n = static_cast<int32_t>(n_rows);
    spans.push_back({first, n, static_cast<int32_t>(length),
                     page_tables_[static_cast<size_t>(sequence)].data()});
    delta.push_back({.first_row = first,
                     .n_new = n,
                     .store_after = n,
                     .first_packed = first,
                     .slot = sequence});
    for (int64_t i = 0; i < n_rows; ++i) {
      tokens.push_back(
          static_cast<int32_t>(random_.next_u64() % static_cast<uint64_t>(vocabulary_)));
      positions.insert(positions.end(), 3, static_cast<int32_t>(length + i));
    }
    if (has_logits) logit_rows.push_back(first + n - 1);
    length += n_rows;
  }
  model.forward({.tokens = tokens,
                 .positions = positions,
                 .rows = spans,
                 .delta_rows = delta,
                 .logit_rows = logit_rows,
                 .logits = logits_.tensor(DType::kF32,
                                          {static_cast<int64_t>(logit_rows.size()), vocabulary_})},
                state);
}

}  // namespace roost
