// The drafts of one step: which streams bring how many, from where, and what becomes of them.
#pragma once

#include <array>
#include <functional>
#include <span>
#include <vector>

#include "base/clock.h"
#include "engine/speculation/copy_match.h"
#include "engine/speculation/depth.h"
#include "model/drafter.h"

namespace roost {

// What a stream carries from round to round.
struct StreamDrafts {
  Acceptance by_drafter, by_copy{kCopyGuess};
  Probe probe;
  DraftFigures figures;

  // Of the step: guesses at the tokens behind the stream's newest one.
  std::array<int32_t, kDraftsMax> drafts{};
  int32_t n_drafts = 0;
  DraftSource source = DraftSource::kDrafter;
  // The draft behind them, for which there is no row: it could not hold, or it is an end token,
  // which holds if the reply ends there.
  enum class Rowless : uint8_t { kNone, kMisfit, kEnd };
  Rowless rowless = Rowless::kNone;

  std::span<const int32_t> drafted() const { return {drafts.data(), size_t(n_drafts)}; }

 private:
  static constexpr double kCopyGuess = 0.9;  // what repeats for so long mostly goes on repeating
};

// A stream that draws a token in the step; its newest token is the anchor.
struct RoundStream {
  StreamDrafts* state = nullptr;
  CopyMatch* matches = nullptr;     // of its tokens
  std::span<const int32_t> tokens;  // of the sequence, the newest included
  int32_t drafts_max = 0;           // that fit its length, its pages and its row store
  const int32_t* page_table = nullptr;
  SampleParams sampling;
};

// Writes the drafts of the blocks, as Drafter::draft.
using DraftBlocks = std::function<void(std::span<const DraftBlock>, std::span<int32_t>)>;

class Rounds {
 public:
  // block_rows_max: of the drafter; 0: there is none, and drafts are copies only. drafts_max: of
  // all streams of a step.
  Rounds(int32_t streams_max, int32_t block_rows_max, int64_t drafts_max, const Clock& clock);

  // Sets drafts, n_drafts and source of every stream; at most drafts_max of all together.
  // plain.n_rows includes their one row each.
  void plan(std::span<RoundStream> streams, const PlainStep& plain, int64_t drafts_max,
            const DraftBlocks& draft);

  // Times blocks without a context, for at most budget_ns (one always): the first costs.
  void measure_drafter(int64_t budget_ns, const DraftBlocks& draft);

  // What became of a stream's drafts: n_accepted of them held, and one more token was drawn, which
  // ended the reply or did not.
  static void note(StreamDrafts& stream, int32_t n_accepted, bool is_end);

  // Requests resemble those before them: a stream's first token takes over what the stream that
  // ended last has shown of the drafter. Copies depend on the text at hand.
  void begin(StreamDrafts& stream) const;
  void end(const StreamDrafts& stream);

  DraftCosts& costs() { return costs_; }
  const DraftCosts& costs() const { return costs_; }

 private:
  DraftOption option_of(RoundStream& stream, const PlainStep& plain) const;
  void run_drafter(std::span<RoundStream> streams, const PlainStep& plain,
                   const DraftBlocks& draft);

  const int32_t block_rows_max_;
  const Clock& clock_;
  DraftCosts costs_;
  // What the next stream begins with.
  Acceptance last_acceptance_;
  Probe last_probe_;
  std::vector<DraftOption> options_;
  std::vector<int32_t> depths_, drafted_;
  std::vector<DraftBlock> blocks_;
};

}  // namespace roost
