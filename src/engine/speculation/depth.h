// How many drafts each stream brings to a step: what gives the most tokens for the time.
#pragma once

#include <cstdint>
#include <span>

#include "engine/speculation/acceptance.h"
#include "engine/speculation/cost_table.h"

namespace roost {

// Where a stream's drafts come from.
enum class DraftSource : uint8_t { kDrafter, kCopy };

// What the engine has measured of its own work.
struct DraftCosts {
  CostTable step;   // rows of the target's step
  CostTable draft;  // rows of the drafter's blocks, anchors included
};

// One stream that draws a token in the step.
struct DraftOption {
  int32_t drafts_max = 0;  // 0: it can only decode plainly
  DraftSource source = DraftSource::kDrafter;
  const Acceptance* acceptance = nullptr;  // of that source; set when drafts_max > 0
};

// The step as it would be without drafts.
struct PlainStep {
  int64_t n_rows = 0;   // all, those of prompts included
  int64_t context = 0;  // the longest of any stream
};

// Sets depths[i], in [0, drafts_max of i] and total_max together, so that expected tokens per
// millisecond of the whole step are largest. Streams share a step, so they are planned together:
// rows are added one by one, each where a draft is likeliest to hold, and the best number of them
// is kept. None is a candidate, and wins ties.
void plan_depths(std::span<const DraftOption> options, const PlainStep& plain, int64_t total_max,
                 const DraftCosts& costs, std::span<int32_t> depths);

// Expected tokens per millisecond of one stream alone with so many drafts.
double worth_of(const DraftOption& option, int32_t depth, const PlainStep& plain,
                const DraftCosts& costs);

// Drafts of a try: as many as cost at most half a plain step more, and one where that is none.
int32_t depth_of_try(const DraftOption& option, const PlainStep& plain, const DraftCosts& costs);

// Lets a stream's first round be a try, and one whose drafts do not pay try again, seldomer each
// time that it was in vain. A try is cheap and shallow; behind one that held whole comes another,
// twice as deep: drafts may pay only where many hold at once.
class Probe {
 public:
  // Drafts to bring in this step, at most `most`: the planned ones, or more where a try is due.
  int32_t depth(int32_t planned, int32_t of_try, int32_t most);
  // What became of the drafts of the step.
  void note(int32_t n_drafted, bool all_held);
  // The next try follows one that held: what the stream has shown is no older than that.
  bool goes_deeper() const { return deeper_ > 0; }
  // Of a stream that begins when this one has ended: it goes on waiting, but not for so long that
  // replies of another kind find no drafts.
  Probe of_next() const;

 private:
  static constexpr int32_t kFirstWait = 16, kWaitMax = 512, kWaitOfNextMax = 128;
  bool is_first_ = true, is_try_ = false;
  int32_t deeper_ = 0;  // drafts of the next step, if a try has just held
  int32_t wait_ = kFirstWait, n_plain_ = 0;
};

}  // namespace roost
