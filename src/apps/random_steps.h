// Forward calls over random tokens of several sequences, for the benches of a model.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/random.h"
#include "device/arena.h"
#include "model/qwen35.h"

namespace roost {

class RandomSteps {
 public:
  // page_tables: of each sequence, whose index is that of its slot too. logits: memory of the
  // model's device for a row [vocabulary] f32 of every sequence.
  RandomSteps(int64_t vocabulary, std::vector<std::vector<int32_t>> page_tables, Buffer logits);

  struct Rows {
    int32_t sequence;
    int64_t n_rows;
  };
  // One step over the next rows of these sequences; has_logits: those of each one's last row.
  void run(Qwen35& model, ModelState& state, std::span<const Rows> rows, bool has_logits);
  // Goes on with the token of this index; what pages and slots hold stays as it is.
  void set_length(int32_t sequence, int64_t length);

 private:
  const int64_t vocabulary_;
  const std::vector<std::vector<int32_t>> page_tables_;
  const Buffer logits_;
  std::vector<int64_t> lengths_;
  SeededRandom random_{1};
};

}  // namespace roost
