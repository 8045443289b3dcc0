// Everything of the engine that runs on its thread: the queue, admission, steps, the prefix cache
// and endings. It is driven call by call and takes time from its clock, so that a simulation can
// drive it as the engine's thread does.
#pragma once

#include <deque>
#include <memory>
#include <optional>
#include <vector>

#include "cache/id_pool.h"
#include "cache/prefix_tree.h"
#include "engine/engine.h"
#include "engine/prefix_disk.h"
#include "engine/prefix_host.h"
#include "engine/scheduler.h"
#include "engine/sequence.h"
#include "engine/speculation/rounds.h"
#include "engine/step_runner.h"

namespace roost {

struct CoreOptions {
  int64_t context_max = 0;
  int32_t streams_max = 0;
  int32_t n_pages = 0, n_snapshots = 0;
  bool has_cache = true;
  int64_t snapshot_every = 2048;
  int32_t turn_token = -1;
  int64_t reserved_new_tokens = 2048;
  bool has_drafts = false;
  double attended_guess = 0;   // of StepCosts
  int64_t drawn_rows_max = 0;  // rows of a step from which tokens are drawn
  SchedulerLimits limits;
  std::vector<int32_t> end_tokens;
  int64_t vocabulary = 0;  // rows of logits have so many at most
  int64_t n_tokens = 0;    // ids below it may be drawn
};

class EngineCore {
 public:
  // The runner and the clock must outlive it.
  EngineCore(CoreOptions options, StepRunner& runner, const Clock& clock);

  // What a request brings, computed by any thread; the caller gives the id and adds it.
  static std::unique_ptr<Sequence> make_sequence(EngineRequest request, EventSink sink,
                                                 const CoreOptions& options, int64_t now_ns);

  // Steps of up to 16 rows are timed, on slots and pages that nobody uses yet: one row once, then
  // as many of 1, 2, 4, 8, 16 rows as fit into budget_ns; then blocks of the drafter, for as long
  // again. Without it the first costs are taken from the first steps.
  void measure_costs(int64_t budget_ns);

  // The prefix tree goes on in files; before the first request. Both must outlive it, and no job
  // may run when it is destroyed.
  void keep_in(PrefixFiles& files, SideWork& side, uint64_t write_bytes_per_s);
  // And before that in so much host memory, where the runner's is another.
  void keep_in_host(int32_t n_pages, int32_t n_snapshots);
  const PrefixHost* host() const { return host_.get(); }  // null: there is none
  PrefixDisk* disk() { return disk_.get(); }              // null: there are no files
  void flush_prefixes();  // all that no sequence needs, and all files

  void add(std::unique_ptr<Sequence> sequence);
  void cancel(Engine::RequestId id);
  bool has_work() const { return !running_.empty() || !waiting_.empty(); }
  bool has_running() const { return !running_.empty(); }
  // When admit has copies to make though nobody runs; PrefixDisk::kNever: not at all.
  int64_t next_copy_ns() const;
  void admit();    // endings that are due, then whoever can start
  void step();     // one forward call for those that run, if any
  void end_all();  // everything ends: with device.lost if that is why, else with kCancelled

  const CoreOptions& options() const { return options_; }
  size_t n_queued() const;  // not admitted yet
  Engine::Counts counts() const;
  const PrefixTree& tree() const { return tree_; }
  const StepCosts& costs() const { return costs_; }
  const DraftCosts& draft_costs() const { return rounds_.costs(); }
  void check_invariants() const;  // pages, slots and snapshots, counted again; for tests

 private:
  int64_t time_rows(int32_t n_rows, const int32_t* page);
  void run_rows();  // of the step that is built

  // A sequence that draws in the step: its rows from the newest token on are the last of its rows.
  struct Drawn {
    int32_t sequence_idx = 0, first_logit = 0, n_accepted = 0;
    bool is_end = false;  // the last of its tokens, the one behind the accepted drafts
  };
  using SequencePtr = std::unique_ptr<Sequence>;

  // admission.cc: who runs.
  std::optional<size_t> next_waiting();
  bool must_wait_for_leader(Sequence& s);
  bool must_wait_for_copies(Sequence& s);
  bool give_up_copies();
  bool reserve(Sequence& s, bool with_cache);
  void fade_shares();
  void enter_running(size_t waiting_idx);
  void grow_pages();
  size_t newest_of_lowest_class() const;
  void suspend(size_t running_idx);
  void release(Sequence& s);

  // prefix_binding.cc: a sequence and the prefix tree.
  static void make_private(Sequence& s);
  void drop_private(const Sequence& s);
  static uint64_t owner_of(const Sequence& s);  // of its snapshots
  void plan_places(Sequence& s) const;
  int64_t estimate_hit(const Sequence& s);
  std::optional<int32_t> take_over_pages(Sequence& s);
  std::optional<Place> next_place(const Sequence& s) const;
  void add_place(Sequence& s, Place place) const;
  void add_place_at_end(Sequence& s) const;
  void keep_snapshot(Sequence& s, SnapshotKind kind);
  void keep_end(Sequence& s, SnapshotKind kind);
  void keep_waiting_places(Sequence& s);
  void publish(Sequence& s, int64_t position);

  // engine_step.cc: one forward call.
  void build_step();
  void fit_told_prompts();
  void add_rows(Sequence& s, int32_t sequence_idx, int64_t n_rows_max);
  void add_told_rows(Sequence& s, int32_t end_row);
  void push_rows(Sequence& s, int64_t n_rows, int64_t stored);
  void plan_drafts();
  int64_t n_drawn_rows() const;
  void note_cost();
  int32_t drafts_max(const Sequence& s) const;
  void commit_rows();
  void tell_prompts();
  void absorb_waiting(const Sequence& s);
  void keep_drawn(const Drawn& drawn);
  void accept(const Sequence& s, Drawn& drawn) const;
  void keep_places_passed();
  void keep(Sequence& s, int32_t token);
  void note_prompt_done(const Sequence& s);

  // engine_core.cc
  void finish(Sequence& s, Finish how, std::optional<Error> error = std::nullopt);
  void fail(Sequence& s, Refusal refusal);  // at the newest row of the sequence
  void end_what_is_due();
  void remove_finished();

  const CoreOptions options_;
  StepRunner& runner_;
  const Clock& clock_;
  PrefixTree tree_;
  std::unique_ptr<PrefixHost> host_;  // null: the runner's memory is the host's
  std::unique_ptr<PrefixDisk> disk_;  // null: the prefix tree ends with the process
  IdPool slots_;
  StepCosts costs_;
  int64_t round_from_ns_ = 0;  // the last step's end, or when the first sequence came
  Rounds rounds_;
  std::vector<CopyMatch> matches_;  // by slot; none without drafts
  std::vector<RoundStream> round_streams_;

  std::vector<SequencePtr> running_;  // in order of admission
  std::deque<SequencePtr> waiting_;
  std::deque<Share> shares_;  // as many as there are sharers
  int64_t shares_as_of_ns_ = 0;
  int64_t epoch_ = 0;  // of running_: what waiting sequences know of it
  std::vector<int32_t> hit_pages_;

  // The step that is built, one entry a chunk or a drawn token.
  std::vector<SequenceNeed> needs_;
  std::vector<Chunk> chunks_;
  std::vector<int32_t> tokens_, positions_, logit_rows_, drawn_tokens_;
  std::vector<Drawn> drawn_;
  std::vector<RowSpan> row_spans_;
  std::vector<TapRows> tap_rows_;
  std::vector<DeltaSpan> delta_spans_;
  std::vector<SampleParams> sampling_;
  std::vector<RowHook*> hooks_;

  Engine::Counts counts_;  // the sums
};

CoreOptions core_options(const EngineOptions& options, const MemoryPlan& plan,
                         const std::vector<int32_t>& end_tokens, int64_t vocabulary);

}  // namespace roost
