// How the rows of one step belong to sequences. A step is one forward call over rows of any number
// of sequences; each brings 1..n consecutive rows.
#pragma once

#include <cstdint>
#include <span>

namespace roost {

inline constexpr int kPageTokens = 64;  // tokens of one page of K/V, on every backend

// Rows [first_row, first_row + n_rows) of the step are tokens first_index, first_index + 1, … of
// one sequence. Its K/V of token t lies in page page_table[t / 64], slot t % 64.
struct RowSpan {
  int32_t first_row = 0;
  int32_t n_rows = 0;
  int32_t first_index = 0;
  const int32_t* page_table = nullptr;  // page ids, at least ceil((first_index + n_rows) / 64)
};

// The recurrent layers' view of one sequence's rows. The stored state lies behind some accepted
// row; n_replay rows accepted since then wait in the sequence's row store. A call runs over
// n_replay + n_new rows, called packed rows, and stores the state behind the first store_after of
// them; packed rows behind that go to the row store (so the next call can replay those of them that
// turn out to be accepted). A plain step is n_replay = 0, store_after = n_new.
struct DeltaSpan {
  int32_t first_row = 0;     // of the n_new rows, in the step's row tensors
  int32_t n_new = 0;         // may be 0: a flush
  int32_t n_replay = 0;      // <= rows of the row store
  int32_t store_after = 0;   // <= n_packed(); the row store must hold the rows behind it
  int32_t first_packed = 0;  // of its n_packed() rows, in the packed tensors
  int32_t slot = 0;          // of its state, conv tail and row store
  int32_t n_packed() const { return n_replay + n_new; }
};

// Rows [first_row, first_row + n_rows) are one draft block (docs/DRAFTER.md): the anchor, then
// masks, at tokens position, position + 1, … of one sequence. Its context is what the drafter has
// kept of tokens [context_begin, position), in pages as those of RowSpan.
struct DraftSpan {
  static constexpr int32_t kRowsMax = 16;
  int32_t first_row = 0;
  int32_t n_rows = 0;  // at most kRowsMax
  int32_t position = 0;
  int32_t context_begin = 0;            // <= position; position: no context
  const int32_t* page_table = nullptr;  // page ids, at least ceil(position / 64)
};

}  // namespace roost
