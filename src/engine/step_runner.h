// What the engine needs of a model: rows run, tokens drawn, states and pages copied. The engine
// deals in numbers of pages, slots and snapshots; the runner owns the bytes behind them.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "base/result.h"
#include "engine/logit_adjust.h"
#include "model/drafter.h"
#include "ops/rows.h"
#include "ops/sample/sample.h"

namespace roost {

// Rows of one step; see Step (model/qwen35.h).
struct StepRows {
  std::span<const int32_t> tokens;         // [T]
  std::span<const int32_t> positions;      // [T][3]
  std::span<const RowSpan> rows;           // covers all T rows, in order
  std::span<const DeltaSpan> delta_rows;   // the same sequences
  std::span<const int32_t> logit_rows;     // rows from which a token is drawn
  std::span<const SampleParams> sampling;  // one for each of them
  std::span<RowHook* const> hooks;         // one for each of them, null for none; or empty
};

// Rows of the last run that are committed, all of one sequence: the drafter takes them in.
struct TapRows {
  RowSpan rows;  // n_rows 0: only those that still wait
  int32_t slot = 0;
  // Nobody reads them yet: they may wait in the runner, to be taken in with later ones. They are
  // gone when the slot gets another state.
  bool can_wait = false;
};

// Engine thread only. No call allocates.
class StepRunner {
 public:
  virtual ~StepRunner() = default;

  // Runs the rows and draws a token for each of logit_rows; -1 where a logit is not finite, and in
  // rows that their hook does not want.
  virtual void run(const StepRows& rows, std::span<int32_t> drawn) = 0;

  // Drafts. Rows of a block; 0: there is no drafter, and the next two do nothing.
  virtual int32_t draft_rows_max() const { return 0; }
  // A sequence's rows come in order and without gaps, whether they wait or not.
  virtual void absorb(std::span<const TapRows>) {}
  virtual void draft(std::span<const DraftBlock>, std::span<int32_t>) {}

  virtual void reset_slot(int32_t slot) = 0;  // the state before a sequence's first token
  // The stored state of a slot moves behind the first n_rows of its row store.
  virtual void replay(int32_t slot, int32_t n_rows) = 0;
  // The stored state of a slot to a snapshot, and back. A state with a value that is not finite is
  // not loaded: false.
  virtual void save_state(int32_t slot, int32_t snapshot) = 0;
  virtual bool load_state(int32_t snapshot, int32_t slot) = 0;
  virtual void copy_page(int32_t from, int32_t to) = 0;

  // Bytes of a page and of a snapshot, for storage outside; spans have exactly these sizes.
  virtual size_t page_bytes() const = 0;
  virtual size_t snapshot_bytes() const = 0;
  virtual void read_page(int32_t page, std::span<std::byte> to) const = 0;
  virtual void write_page(int32_t page, std::span<const std::byte> from) = 0;
  virtual void read_snapshot(int32_t snapshot, std::span<std::byte> to) const = 0;
  virtual void write_snapshot(int32_t snapshot, std::span<const std::byte> from) = 0;

  virtual std::string name() const = 0;                  // "cpu avx3, 2 threads"
  virtual const Error* loss() const { return nullptr; }  // of its device; see Device
};

}  // namespace roost
