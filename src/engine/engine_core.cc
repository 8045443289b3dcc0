#include "engine/engine_core.h"

#include <algorithm>
#include <limits>
#include <numeric>

namespace roost {

static_assert(kTreePageTokens == kPageTokens);

namespace {

// Published models of this family need more tokens in front of a row than StepCosts' unit to
// double its cost.
constexpr double kAttendedGuess = 1;

}  // namespace

CoreOptions core_options(const EngineOptions& options, const MemoryPlan& plan,
                         const std::vector<int32_t>& end_tokens, int64_t vocabulary) {
  CoreOptions core;
  core.context_max = options.context_max;
  core.streams_max = options.streams_max;
  core.n_pages = plan.n_pages;
  core.n_snapshots = plan.n_snapshots;
  core.has_cache = options.has_cache;
  core.snapshot_every = options.snapshot_every;
  core.turn_token = options.turn_token;
  core.reserved_new_tokens = options.reserved_new_tokens;
  core.has_drafts = options.has_drafts;
  core.attended_guess = kAttendedGuess;
  core.drawn_rows_max = drawn_rows_max(options);
  core.limits.step_rows_max = options.chunk_rows_max;
  core.limits.gap_ns_max = options.gap_ns_max;
  core.end_tokens = end_tokens;
  core.vocabulary = vocabulary;
  core.n_tokens = options.n_tokens;
  return core;
}

EngineCore::EngineCore(CoreOptions options, StepRunner& runner, const Clock& clock)
    : options_(std::move(options)),
      runner_(runner),
      clock_(clock),
      tree_(options_.n_pages, options_.n_snapshots),
      slots_(options_.streams_max),
      costs_(options_.attended_guess),
      rounds_(options_.streams_max, options_.has_drafts ? runner.draft_rows_max() : 0,
              std::max<int64_t>(options_.drawn_rows_max, options_.streams_max), clock) {
  const auto n_streams = static_cast<size_t>(options_.streams_max);
  const auto n_rows = static_cast<size_t>(options_.limits.step_rows_max);
  running_.reserve(n_streams);
  hit_pages_.reserve(static_cast<size_t>(options_.n_pages));
  needs_.reserve(n_streams);
  chunks_.reserve(n_streams);
  tokens_.reserve(n_rows);
  positions_.reserve(3 * n_rows);
  const auto n_drawn =
      static_cast<size_t>(std::max<int64_t>(options_.drawn_rows_max, options_.streams_max));
  for (auto* per_row : {&logit_rows_, &drawn_tokens_}) per_row->reserve(n_drawn);
  sampling_.reserve(n_drawn);
  row_spans_.reserve(n_streams);
  tap_rows_.reserve(n_streams);
  delta_spans_.reserve(n_streams);
  drawn_.reserve(n_streams);
  round_streams_.reserve(n_streams);
  if (options_.has_drafts) matches_.assign(n_streams, CopyMatch(options_.context_max));
  hooks_.reserve(static_cast<size_t>(options_.drawn_rows_max));
}

std::unique_ptr<Sequence> EngineCore::make_sequence(EngineRequest request, EventSink sink,
                                                    const CoreOptions& options, int64_t now_ns) {
  auto s = std::make_unique<Sequence>();
  s->n_prompt = static_cast<int64_t>(request.prompt.size());
  const int64_t fits = options.context_max - s->n_prompt;
  s->is_cut_by_context = request.new_tokens_max > fits;
  s->new_tokens_max = std::min(request.new_tokens_max, fits);
  const int64_t n_tokens_max = s->n_prompt + s->new_tokens_max;
  s->tokens.reserve(static_cast<size_t>(n_tokens_max));
  s->tokens = request.prompt;
  s->pages.reserve(static_cast<size_t>((n_tokens_max + kPageTokens - 1) / kPageTokens));
  s->uses_cache = options.has_cache && !request.tells_prompt;
  s->is_private = s->uses_cache && !request.uses_cache;
  s->event.n_prompt = s->n_prompt;
  s->event.tokens.reserve(1);
  s->event.submitted_ns = now_ns;
  s->request = std::move(request);
  if (s->request.grammar) {
    s->matcher = std::make_unique<GrammarMatcher>(s->request.grammar);
    const int64_t n_text = s->request.grammar.grammar->vocabulary().n_tokens();
    s->allowed.resize(mask_words(std::max(options.n_tokens, n_text)));
  }
  s->sink = std::move(sink);
  s->prepare_rows(options.vocabulary, options.end_tokens, options.has_drafts ? 1 + kDraftsMax : 1);
  return s;
}

int64_t EngineCore::time_rows(int32_t n_rows, const int32_t* page) {
  // Different tokens, so that experts are as different as those of a batch.
  tokens_.resize(static_cast<size_t>(n_rows));
  std::iota(tokens_.begin(), tokens_.end(), 0);
  positions_.clear();
  for (int32_t t = 0; t < n_rows; ++t) positions_.insert(positions_.end(), 3, t);
  row_spans_.assign(1, {0, n_rows, 0, page});
  delta_spans_.assign(1, {.n_new = n_rows, .store_after = n_rows});
  // Rows that decode or are verified are drawn from.
  logit_rows_.resize(static_cast<size_t>(std::min<int64_t>(n_rows, options_.drawn_rows_max)));
  std::iota(logit_rows_.begin(), logit_rows_.end(), 0);
  sampling_.assign(logit_rows_.size(), {});
  const int64_t from = clock_.now_ns();
  run_rows();
  return std::max<int64_t>(clock_.now_ns() - from, 1);
}

// What disturbs a measurement only ever lengthens it: of several the least counts.
void EngineCore::measure_costs(int64_t budget_ns) {
  constexpr int kRepetitions = 3;
  std::vector<StepCosts::Sample> samples;
  const int32_t page = *tree_.take_page();
  int64_t best = time_rows(1, &page);  // touches memory that the others find in place
  const int64_t begin = clock_.now_ns();
  // Twice the rows take twice the time at most.
  const auto fits = [&] { return clock_.now_ns() - begin + 2 * best <= budget_ns; };
  for (const int32_t n_rows : {1, 2, 4, 8, 16}) {
    if (n_rows > options_.limits.step_rows_max || (n_rows > 1 && !fits())) break;
    int64_t least = n_rows == 1 ? best : std::numeric_limits<int64_t>::max();
    for (int i = 0; i < kRepetitions && (i == 0 || fits()); ++i) {
      if (n_rows == 1 && !fits()) break;
      least = std::min(least, time_rows(n_rows, &page));
    }
    best = least;
    samples.push_back({n_rows, least});
  }
  costs_.set(samples);
  for (const StepCosts::Sample& sample : samples)
    rounds_.costs().step.record(sample.n_rows, 0, static_cast<double>(sample.ns) * 1e-6);
  rounds_.measure_drafter(budget_ns,
                          [this](auto blocks, auto tokens) { runner_.draft(blocks, tokens); });
  tree_.release_page(page);
  tokens_.clear();
}

void EngineCore::keep_in(PrefixFiles& files, SideWork& side, uint64_t write_bytes_per_s) {
  disk_ = std::make_unique<PrefixDisk>(
      PrefixDisk::Options{&files, &side, write_bytes_per_s, options_.context_max}, tree_, runner_,
      clock_);
}

void EngineCore::keep_in_host(int32_t n_pages, int32_t n_snapshots) {
  PrefixHost::Options options;
  options.n_pages = n_pages;
  options.n_snapshots = n_snapshots;
  options.context_max = options_.context_max;
  host_ = std::make_unique<PrefixHost>(options, tree_, runner_, clock_);
}

int64_t EngineCore::next_copy_ns() const {
  if (runner_.loss() != nullptr) return PrefixDisk::kNever;  // nothing is copied any more
  return std::min(host_ ? host_->next_ns() : PrefixHost::kNever,
                  disk_ ? disk_->next_ns() : PrefixDisk::kNever);
}

// ---- Commands -----------------------------------------------------------------------------------

void EngineCore::add(SequencePtr sequence) {
  if (sequence->is_private) make_private(*sequence);
  sequence->clock = &clock_;
  sequence->mask_seconds = &counts_.mask_seconds;
  const auto share = std::find_if(shares_.begin(), shares_.end(), [&](const Share& known) {
    return known.sharer == sequence->request.sharer;
  });
  sequence->share =
      share != shares_.end() ? &*share : &shares_.emplace_back(Share{sequence->request.sharer});
  plan_places(*sequence);
  sequence->n_hit_estimate = estimate_hit(*sequence);
  waiting_.push_back(std::move(sequence));
}

void EngineCore::cancel(Engine::RequestId id) {
  for (auto& s : running_) s->is_cancelled |= s->id == id;
  for (auto& s : waiting_) s->is_cancelled |= s->id == id;
}

void EngineCore::end_all() {
  const auto end = [this](Sequence& s) {
    if (const Error* loss = runner_.loss()) return finish(s, Finish::kError, *loss);
    finish(s, Finish::kCancelled);
  };
  for (auto& s : running_) end(*s);
  for (auto& s : waiting_) end(*s);
  remove_finished();
}

size_t EngineCore::n_queued() const {
  return static_cast<size_t>(std::count_if(waiting_.begin(), waiting_.end(),
                                           [](const SequencePtr& s) { return s->is_queued; }));
}

void EngineCore::flush_prefixes() {
  tree_.drop_unneeded();
  if (host_) host_->flush();
  if (disk_) disk_->flush();
}

Engine::Counts EngineCore::counts() const {
  Engine::Counts c = counts_;
  c.n_running = static_cast<int32_t>(running_.size());
  c.n_waiting = static_cast<int32_t>(waiting_.size());
  c.n_free_pages = tree_.n_available_pages();
  c.n_pages = tree_.n_pages();
  c.n_cached_pages = tree_.n_cached_pages();
  c.n_free_slots = slots_.n_free();
  c.n_slots = slots_.n_total();
  c.n_kept_snapshots = tree_.n_used_snapshots();
  c.n_snapshots = tree_.n_snapshots();
  c.n_evicted_pages = tree_.n_evicted_pages();
  c.n_evicted_snapshots = tree_.n_evicted_snapshots();
  c.n_saved_snapshots = tree_.n_added_snapshots();
  if (host_) {
    c.n_host_snapshots = host_->tree().n_used_snapshots();
    c.n_host_pages = host_->tree().n_cached_pages();
    c.n_restored_from_host = host_->n_restored();
  }
  if (disk_) {
    const PrefixFiles::Counts files = disk_->files().counts();
    c.n_cache_files = files.n_entries;
    c.n_cache_file_bytes = static_cast<int64_t>(files.n_bytes);
    c.n_cache_files_skipped = files.n_skipped;
    c.n_cache_files_written = files.n_written;
    c.n_cache_writes_failed = files.n_failed_writes;
  }
  return c;
}

void EngineCore::check_invariants() const {
  tree_.check_invariants();
  ROOST_CHECK(slots_.n_total() - slots_.n_free() == static_cast<int32_t>(running_.size()));
  int32_t n_held = 0;
  std::vector<bool> is_seen(static_cast<size_t>(tree_.n_pages()), false);
  const auto see = [&](int32_t page) {
    ROOST_CHECK(tree_.is_held(page));
    n_held += !is_seen[static_cast<size_t>(page)];
    is_seen[static_cast<size_t>(page)] = true;
  };
  if (host_) {
    host_->tree().check_invariants();
    std::for_each(host_->held_pages().begin(), host_->held_pages().end(), see);
  }
  if (disk_) std::for_each(disk_->held_pages().begin(), disk_->held_pages().end(), see);
  for (const SequencePtr& s : running_) {
    ROOST_CHECK(s->slot >= 0 && s->n_stored <= s->n_computed && s->n_computed <= s->n_tokens());
    ROOST_CHECK(s->n_computed - s->n_stored <= kReplayRowsMax);
    std::for_each(s->pages.begin(), s->pages.end(), see);
  }
  ROOST_CHECK(n_held == tree_.n_held_pages());
  for (const SequencePtr& s : waiting_) ROOST_CHECK(s->slot < 0 && s->pages.empty());
}

// ---- Endings ------------------------------------------------------------------------------------

void EngineCore::finish(Sequence& s, Finish how, std::optional<Error> error) {
  if (!s.sink) return;  // it has ended already
  s.event.kind = EngineEvent::Kind::kFinished;
  s.event.tokens.clear();
  s.event.logprobs.clear();
  s.event.finish = how;
  s.event.error = std::move(error);
  s.event.n_generated = s.n_generated();
  s.event.drafts = s.drafts.figures;
  if (s.request.drafts_max > 0) rounds_.end(s.drafts);
  s.event.has_found_loop = s.budget.has_found_loop();
  s.event.finished_ns = clock_.now_ns();
  s.sink(s.event);
  s.sink = nullptr;
}

void EngineCore::fail(Sequence& s, Refusal refusal) {
  finish(s, Finish::kError, Error{refusal, "position " + std::to_string(s.n_computed)});
}

// A deadline ends what waits or computes its prompt, and what replies.
void EngineCore::end_what_is_due() {
  const int64_t now = clock_.now_ns();
  const auto look_at = [&](Sequence& s) {
    if (s.is_cancelled) finish(s, Finish::kCancelled);
    if (s.request.deadline_ns > 0 && now >= s.request.deadline_ns) {
      finish(
          s, Finish::kError,
          Error{Refusal::RequestDeadline, std::to_string(s.n_generated()) + " tokens were kept"});
    }
  };
  for (auto& s : running_) look_at(*s);
  for (auto& s : waiting_) look_at(*s);
  remove_finished();
}

// What was computed stays in the prefix cache: a reply for the turn that extends it, a prompt that
// was cancelled for the one that comes again. A failed sequence leaves nothing.
void EngineCore::remove_finished() {
  for (SequencePtr& s : running_) {
    if (s->sink) continue;
    const EngineEvent& end = s->event;
    if (s->is_private) {
      // Its own, which are dropped below.
    } else if (end.error && end.error->refusal == Refusal::EngineNonfinite) {
      tree_.drop_snapshots_of(s->id);
      if (host_) host_->drop_snapshots_of(s->id);
    } else if (end.finish == Finish::kCancelled || end.finish == Finish::kError) {
      keep_waiting_places(*s);
      if (s->n_stored - s->n_kept >= kPageTokens) keep_snapshot(*s, SnapshotKind::kBorder);
    } else {
      keep_end(*s, SnapshotKind::kReply);
    }
    release(*s);
  }
  for (const SequencePtr& s : waiting_) {
    if (host_ && !s->sink) host_->forget(*s);
    if (disk_ && !s->sink) disk_->forget(*s);
  }
  for (const SequencePtr& s : running_) drop_private(*s);
  for (const SequencePtr& s : waiting_) drop_private(*s);
  const auto has_ended = [](const SequencePtr& s) { return !s->sink; };
  const size_t n_stopped = std::erase_if(running_, has_ended);
  if (n_stopped > 0) ++epoch_;
  counts_.n_requests += static_cast<int64_t>(n_stopped + std::erase_if(waiting_, has_ended));
}

}  // namespace roost
