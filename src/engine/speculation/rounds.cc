#include "engine/speculation/rounds.h"

#include <algorithm>

#include "base/check.h"

namespace roost {

Rounds::Rounds(int32_t streams_max, int32_t block_rows_max, int64_t drafts_max, const Clock& clock)
    : block_rows_max_(block_rows_max), clock_(clock) {
  const auto n = static_cast<size_t>(streams_max);
  options_.reserve(n), depths_.reserve(n), blocks_.reserve(n);
  drafted_.reserve(static_cast<size_t>(drafts_max));
}

// The better of the drafter and a copy, each at its best depth, as if the stream were alone. The
// copy's tokens are in the stream's drafts then.
DraftOption Rounds::option_of(RoundStream& stream, const PlainStep& plain) const {
  StreamDrafts& s = *stream.state;
  const int32_t most = std::min(stream.drafts_max, kDraftsMax);
  stream.matches->extend(stream.tokens);
  const int32_t n_copied =
      stream.matches->propose(stream.tokens, std::span(s.drafts).first(static_cast<size_t>(most)));
  const DraftOption copy{n_copied, DraftSource::kCopy, &s.by_copy};
  if (block_rows_max_ == 0) return copy;
  const DraftOption drafted{std::min(most, block_rows_max_ - 1), DraftSource::kDrafter,
                            &s.by_drafter};
  if (n_copied == 0) return drafted;
  const auto best = [&](const DraftOption& option) {
    double worth = 0;
    for (int32_t depth = 0; depth <= option.drafts_max; ++depth)
      worth = std::max(worth, worth_of(option, depth, plain, costs_));
    return worth;
  };
  return best(copy) >= best(drafted) ? copy : drafted;
}

void Rounds::plan(std::span<RoundStream> streams, const PlainStep& plain, int64_t drafts_max,
                  const DraftBlocks& draft) {
  if (streams.empty()) return;
  options_.clear();
  for (RoundStream& stream : streams) options_.push_back(option_of(stream, plain));
  depths_.assign(streams.size(), 0);
  plan_depths(options_, plain, drafts_max, costs_, depths_);
  int64_t n_left = drafts_max;
  for (const int32_t depth : depths_) n_left -= depth;
  for (size_t i = 0; i < streams.size(); ++i) {
    StreamDrafts& s = *streams[i].state;
    s.source = options_[i].source;
    const auto most =
        static_cast<int32_t>(std::min<int64_t>(options_[i].drafts_max, depths_[i] + n_left));
    const bool is_new = !s.probe.goes_deeper();
    s.n_drafts = s.probe.depth(depths_[i], depth_of_try(options_[i], plain, costs_), most);
    if (is_new && depths_[i] == 0 && s.n_drafts > 0)
      (s.source == DraftSource::kCopy ? s.by_copy : s.by_drafter).fade();
    n_left -= s.n_drafts - depths_[i];
  }
  run_drafter(streams, plain, draft);
}

void Rounds::run_drafter(std::span<RoundStream> streams, const PlainStep& plain,
                         const DraftBlocks& draft) {
  blocks_.clear();
  size_t n_drafts = 0;
  for (const RoundStream& stream : streams) {
    const StreamDrafts& s = *stream.state;
    if (s.n_drafts == 0 || s.source != DraftSource::kDrafter) continue;
    const auto position = static_cast<int32_t>(stream.tokens.size()) - 1;
    blocks_.push_back({.anchor = stream.tokens.back(),
                       .n_rows = s.n_drafts + 1,
                       .position = position,
                       .context_begin = 0,
                       .page_table = stream.page_table,
                       .params = stream.sampling});
    n_drafts += static_cast<size_t>(s.n_drafts);
  }
  if (blocks_.empty()) return;
  drafted_.assign(n_drafts, -1);
  const int64_t from = clock_.now_ns();
  draft(blocks_, drafted_);
  const int64_t took = clock_.now_ns() - from;
  costs_.draft.record(static_cast<int64_t>(n_drafts + blocks_.size()), plain.context,
                      static_cast<double>(took) * 1e-6);
  const int32_t* next = drafted_.data();
  for (const RoundStream& stream : streams) {
    StreamDrafts& s = *stream.state;
    if (s.n_drafts == 0 || s.source != DraftSource::kDrafter) continue;
    s.figures.draft_ns += took;
    std::copy_n(next, s.n_drafts, s.drafts.begin());
    next += s.n_drafts;
    // Behind a row that is not finite there are no drafts; a drafter without any must not look like
    // one that nobody asked.
    const auto end = s.drafts.begin() + s.n_drafts;
    const auto none = std::find(s.drafts.begin(), end, -1);
    if (none != end) s.rowless = StreamDrafts::Rowless::kMisfit;
    s.n_drafts = static_cast<int32_t>(none - s.drafts.begin());
  }
}

void Rounds::measure_drafter(int64_t budget_ns, const DraftBlocks& draft) {
  const int64_t begin = clock_.now_ns();
  // From the largest on, twice: the first touches memory that the others find in place.
  for (int32_t n_rows = block_rows_max_; n_rows >= 2; n_rows = (n_rows + 1) / 2) {
    const DraftBlock block{.n_rows = n_rows};
    drafted_.assign(static_cast<size_t>(n_rows) - 1, -1);
    int64_t best = INT64_MAX;
    for (int repetition = 0; repetition < 2; ++repetition) {
      const int64_t from = clock_.now_ns();
      if (best != INT64_MAX && from - begin >= budget_ns) break;
      draft({&block, 1}, drafted_);
      best = std::min(best, clock_.now_ns() - from);
    }
    costs_.draft.record(n_rows, 0, static_cast<double>(best) * 1e-6);
    if (clock_.now_ns() - begin >= budget_ns || n_rows == 2) break;
  }
}

void Rounds::begin(StreamDrafts& s) const {
  s.by_drafter = last_acceptance_;
  s.probe = last_probe_;
}

void Rounds::end(const StreamDrafts& s) {
  if (s.figures.n_rounds + s.figures.n_plain_steps == 0) return;
  last_probe_ = s.probe.of_next();
  if (s.figures.n_rounds == 0) return;  // it showed nothing new
  last_acceptance_ = s.by_drafter;
  last_acceptance_.fade();
}

void Rounds::note(StreamDrafts& s, int32_t n_accepted, bool is_end) {
  s.figures.n_tokens += n_accepted + 1;
  if (s.n_drafts == 0) {
    ++s.figures.n_plain_steps;
  } else {
    s.figures.record_round(s.n_drafts + 1, s.n_drafts, n_accepted);
  }
  const bool is_copy = s.source == DraftSource::kCopy;
  if (is_copy) s.figures.n_copied += s.n_drafts;
  // A draft without a row was tried all the same where all in front of it held.
  using Rowless = StreamDrafts::Rowless;
  const int32_t n_tried = s.n_drafts + (s.rowless != Rowless::kNone);
  const bool is_end_right = s.rowless == Rowless::kEnd && is_end && n_accepted == s.n_drafts;
  if (n_tried > 0) (is_copy ? s.by_copy : s.by_drafter).record(n_tried, n_accepted + is_end_right);
  s.probe.note(n_tried, n_accepted + is_end_right == n_tried);
  s.rowless = Rowless::kNone;
}

}  // namespace roost
