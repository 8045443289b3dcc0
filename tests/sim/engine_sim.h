// A crowd of clients before the engine's core, the fake model and a virtual clock, from one seed.
#pragma once

#include <signal.h>
#include <stdlib.h>
#include <sys/resource.h>

#include <deque>
#include <filesystem>
#include <fstream>
#include <memory>
#include <random>
#include <set>
#include <string>

#include "engine/engine_core.h"
#include "tests/side_work.h"
#include "tests/sim/fake_runner.h"

namespace roost::testing {

struct SimReport {
  int64_t n_requests = 0, n_finished = 0, n_cancelled = 0, n_failed = 0, n_late = 0;
  int64_t n_steps = 0, n_suspended = 0, n_evicted_pages = 0, n_prompt = 0, n_cached = 0;
  int64_t n_restarts = 0, n_kills = 0;
  int64_t n_files_written = 0, n_files_skipped = 0, n_failed_writes = 0, n_restored = 0;
  int64_t n_from_host = 0;
  std::string failure;  // empty: every reply was the one that it must be
};

class EngineSim {
 public:
  explicit EngineSim(uint64_t seed, FakeRunner::Fault fault = FakeRunner::Fault::kNone)
      : random_(seed), fault_(fault) {
    CoreOptions options;
    options.streams_max = 1 + pick(6);
    options.context_max = 64 * (3 + pick(20));
    options.n_pages =
        static_cast<int32_t>(options.context_max / 64) + pick(4 * options.streams_max + 30);
    options.n_snapshots = pick(24);
    options.has_cache = pick(12) != 0;
    options.snapshot_every = 64 * (1 + pick(8));
    options.turn_token = kTurn;
    options.reserved_new_tokens = 1 + pick(100);
    options.limits.step_rows_max = options.streams_max + pick(200);
    options.limits.gap_ns_max = 1'000'000 * (1 + pick(60));
    options.end_tokens = {FakeModel::kEndToken};
    options_ = options;
    costs_ = {.step_ns = 1'000'000 * pick(20), .row_ns = 10'000 * (1 + pick(100))};
    has_host_ = options.has_cache && seed % 3 == 1;
    if (options.has_cache && pick(3) == 0) {
      std::string folder = (std::filesystem::temp_directory_path() / "roost-sim-XXXXXX").string();
      ROOST_CHECK(mkdtemp(folder.data()) != nullptr);
      folder_ = folder;
      disk_bytes_ = 5'000 * (1 + static_cast<uint64_t>(pick(100)));
      write_bytes_per_s_ = 1'000 << pick(20);
    }
    start();
    system_ = random_tokens(20 + pick(150));
  }

  ~EngineSim() {
    if (!folder_.empty()) std::filesystem::remove_all(folder_);
  }

  SimReport run(int64_t n_requests) {
    while (report_.failure.empty() && (report_.n_requests < n_requests || core_->has_work())) {
      if (report_.n_requests < n_requests) arrive();
      if (pick(30) == 0) cancel_one();
      if (core_->options().n_snapshots > 0 && pick(300) == 0)
        runner_->spoil_snapshot(pick(core_->options().n_snapshots));
      step();
      if (folder_.empty()) continue;
      if (pick(4) == 0) work_beside();
      if (pick(100) == 0) spoil_files();
      if (!core_->has_work() && pick(2) == 0) restart();
    }
    add_counts();
    expect(n_ended_ == report_.n_requests, "requests are lost");
    return report_;
  }

 private:
  static constexpr int32_t kTurn = 998;

  struct Client {
    EngineRequest request;
    std::vector<int32_t> want, have;
    bool is_done = false, is_cancelled = false;
  };

  void start() {
    runner_ = std::make_unique<FakeRunner>(options_.n_pages, options_.streams_max,
                                           options_.n_snapshots, clock_, costs_);
    runner_->plant(fault_);
    core_ = std::make_unique<EngineCore>(options_, *runner_, clock_);
    core_->measure_costs(300'000'000);
    // The fake model's memory is another than what its pages and states are copied to.
    if (has_host_) core_->keep_in_host(20 + pick(100), 1 + pick(30));
    if (!folder_.empty()) {
      auto files = PrefixFiles::open({.folder = folder_,
                                      .bytes_max = disk_bytes_,
                                      .free_min = 0,
                                      .identity = "fake",
                                      .page_bytes = runner_->page_bytes(),
                                      .snapshot_bytes = runner_->snapshot_bytes()});
      ROOST_CHECK(bool(files));
      files_ = std::move(files).value();
      core_->keep_in(*files_, side_, write_bytes_per_s_);
    }
    core_->check_invariants();
  }

  // The job beside the engine ends: as it should, or the disk is full at some byte.
  void work_beside() {
    if (pick(6) != 0) return side_.finish();
    signal(SIGXFSZ, SIG_IGN);
    rlimit before{};
    getrlimit(RLIMIT_FSIZE, &before);
    const rlimit cut = {static_cast<rlim_t>(pick(4000)), before.rlim_max};
    setrlimit(RLIMIT_FSIZE, &cut);
    side_.finish();
    setrlimit(RLIMIT_FSIZE, &before);
  }

  // Files are cut short, or lose a byte to another, while they are used or while nobody looks.
  void spoil_files() {
    for (const auto& item : std::filesystem::directory_iterator(folder_)) {
      if (!item.path().string().ends_with(".prefix") || pick(6) != 0) continue;
      const auto size = static_cast<int64_t>(item.file_size());
      if (pick(2) == 0) {
        std::filesystem::resize_file(item.path(), static_cast<uintmax_t>(pick(size)));
      } else {
        std::fstream file(item.path(), std::ios::in | std::ios::out | std::ios::binary);
        file.seekp(pick(size));
        file.put(static_cast<char>(pick(256)));
      }
    }
  }

  // The process ends, having saved some or all, or is killed in the middle of a write; a new one
  // starts.
  void restart() {
    const bool is_killed = pick(3) == 0;
    if (is_killed) {
      side_ = {};
      std::ofstream(folder_ + "/0123.prefix.temporary") << "half of it";
      ++report_.n_kills;
    } else {
      for (int n = pick(3) == 0 ? pick(4) : 1000; n > 0 && core_->disk()->write_rest(); --n)
        continue;
      side_.finish();
    }
    add_counts();
    core_.reset();
    files_.reset();
    if (pick(3) == 0) spoil_files();
    start();
    ++report_.n_restarts;
  }

  void add_counts() {
    const Engine::Counts c = core_->counts();
    report_.n_suspended += c.n_suspended;
    report_.n_evicted_pages += c.n_evicted_pages;
    report_.n_steps += c.n_steps;
    n_ended_ += c.n_requests;
    report_.n_files_skipped += c.n_cache_files_skipped;
    report_.n_files_written += c.n_cache_files_written;
    report_.n_failed_writes += c.n_cache_writes_failed;
    report_.n_restored += c.n_restored;
    report_.n_from_host += c.n_restored_from_host;
    expect(c.n_free_slots == c.n_slots && c.n_free_pages == c.n_pages, "pages or slots are lost");
  }

  int32_t pick(int64_t n) {
    return static_cast<int32_t>(random_() % static_cast<uint64_t>(std::max<int64_t>(n, 1)));
  }
  std::vector<int32_t> random_tokens(int64_t n) {
    std::vector<int32_t> tokens(static_cast<size_t>(n));
    for (int32_t& t : tokens) t = 1 + pick(FakeModel::kVocabulary - 4);
    return tokens;
  }
  void expect(bool is_so, const char* what) {
    if (!is_so && report_.failure.empty()) report_.failure = what;
  }
  static void append(std::vector<int32_t>& to, const std::vector<int32_t>& from) {
    to.insert(to.end(), from.begin(), from.end());
  }

  // Somebody new, a next turn, an earlier prompt again or cut, or a flood of equal ones.
  void arrive() {
    if (pick(3) != 0) return;
    EngineRequest r;
    r.new_tokens_max = 1 + pick(pick(4) == 0 ? 300 : 30);
    r.sampling.seed = random_();
    r.ignore_end_tokens = pick(5) == 0;
    if (pick(8) == 0) r.priority = kBackgroundPriority;
    if (pick(6) == 0) r.priority += pick(41) - 20;
    r.sharer.low = static_cast<uint64_t>(pick(3));
    if (pick(15) == 0) r.uses_cache = false;
    if (pick(10) == 0) r.cache_salt = {1 + random_() % 2, 0};
    if (pick(25) == 0) r.deadline_ns = clock_.now_ns() + 1'000'000 * (1 + pick(2000));
    if (history_.empty() || pick(4) == 0) {
      r.prompt = pick(2) == 0 ? system_ : random_tokens(1 + pick(40));
      r.prompt.push_back(kTurn);
      append(r.prompt, random_tokens(1 + pick(pick(5) == 0 ? 700 : 60)));
    } else {
      r.prompt = history_[static_cast<size_t>(pick(static_cast<int64_t>(history_.size())))];
      if (pick(4) == 0)
        r.prompt.resize(1 + static_cast<size_t>(pick(static_cast<int64_t>(r.prompt.size()))));
      if (pick(3) != 0) {
        r.prompt.push_back(kTurn);
        append(r.prompt, random_tokens(1 + pick(60)));
        r.prompt.push_back(kTurn);
        append(r.prompt, random_tokens(1 + pick(20)));
      }
    }
    for (int i = pick(3); i > 0; --i) r.places.push_back(pick(1000));
    const int64_t n_max = core_->options().context_max - 1;
    if (static_cast<int64_t>(r.prompt.size()) > n_max) r.prompt.resize(static_cast<size_t>(n_max));
    if (pick(60) == 0)
      r.prompt[static_cast<size_t>(pick(static_cast<int64_t>(r.prompt.size())))] =
          FakeModel::kPoison;
    for (int n = pick(12) == 0 ? 1 + pick(5) : 1; n > 0; --n) submit(r);
  }

  void submit(const EngineRequest& request) {
    auto client = std::make_shared<Client>();
    client->request = request;
    const int64_t n_max =
        std::min(request.new_tokens_max,
                 core_->options().context_max - static_cast<int64_t>(request.prompt.size()));
    client->want = reply_of(request, n_max);
    auto sequence = EngineCore::make_sequence(
        request, [this, client](const EngineEvent& event) { hear(*client, event); },
        core_->options(), clock_.now_ns());
    sequence->id = static_cast<Engine::RequestId>(++report_.n_requests);
    open_.push_back({sequence->id, client});
    core_->add(std::move(sequence));
  }

  // With end tokens ignored they are kept like any other.
  static std::vector<int32_t> reply_of(const EngineRequest& request, int64_t n_max) {
    if (!request.ignore_end_tokens)
      return FakeModel::reply_of(request.prompt, request.sampling.seed, n_max);
    std::vector<int32_t> all = request.prompt, reply;
    while (static_cast<int64_t>(reply.size()) < n_max) {
      const auto part = FakeModel::reply_of(all, request.sampling.seed,
                                            n_max - static_cast<int64_t>(reply.size()));
      append(reply, part), append(all, part);
      const bool is_poisoned = std::count(all.begin(), all.end(), FakeModel::kPoison) > 0;
      if (is_poisoned || static_cast<int64_t>(reply.size()) >= n_max) break;
      reply.push_back(FakeModel::kEndToken), all.push_back(FakeModel::kEndToken);
    }
    return reply;
  }

  void hear(Client& client, const EngineEvent& event) {
    expect(!client.is_done, "an event came behind the end");
    append(client.have, event.tokens);
    const size_t n = client.have.size();
    expect(n <= client.want.size() &&
               std::equal(client.have.begin(), client.have.end(), client.want.begin()),
           "a token differs from what the request alone gives");
    if (event.kind != EngineEvent::Kind::kFinished) return;
    client.is_done = true;
    ++report_.n_finished;
    expect(event.n_cached < event.n_prompt, "no prompt token was computed");
    expect(event.n_cached == 0 || client.request.uses_cache, "the opt-out was not followed");
    if (event.finish == Finish::kCancelled) {
      ++report_.n_cancelled;
      expect(client.is_cancelled, "ended as cancelled, by nobody");
      return;
    }
    if (event.finish == Finish::kError) {
      const bool is_late = event.error->refusal == Refusal::RequestDeadline;
      (is_late ? report_.n_late : report_.n_failed) += 1;
      const auto& prompt = client.request.prompt;
      const bool is_poisoned = std::count(prompt.begin(), prompt.end(), FakeModel::kPoison) > 0;
      expect(is_late ? client.request.deadline_ns > 0 : is_poisoned, "failed without a cause");
      return;
    }
    expect(n == client.want.size(), "a reply is cut short");
    report_.n_prompt += event.n_prompt;
    report_.n_cached += event.n_cached;
    std::vector<int32_t> all = client.request.prompt;
    append(all, client.have);
    history_.push_back(std::move(all));
    if (history_.size() > 12) history_.pop_front();
  }

  void cancel_one() {
    std::erase_if(open_, [](const auto& entry) { return entry.second->is_done; });
    if (open_.empty()) return;
    const auto& [id, client] = open_[static_cast<size_t>(pick(static_cast<int64_t>(open_.size())))];
    client->is_cancelled = true;
    core_->cancel(id);
  }

  void step() {
    clock_.advance(100'000);
    core_->admit();
    const Engine::Counts before = core_->counts();
    core_->step();
    const Engine::Counts after = core_->counts();
    core_->check_invariants();
    if (after.n_steps == before.n_steps) {
      const bool waits_for_disk = core_->disk() != nullptr && side_.is_busy();
      const bool waits_for_host = core_->host() != nullptr && core_->host()->is_restoring();
      expect(before.n_running == 0 && (before.n_waiting == 0 || waits_for_disk || waits_for_host),
             "nobody runs although somebody waits");
      if (waits_for_disk) clock_.advance(pick(200) == 0 ? 20'000'000'000 : 1'000'000);
      return;
    }
    // Streams run on beside prompts: the step keeps the bound, as costs here are what they were
    // measured to be.
    const int64_t n_decoding = runner_->n_last_decoding();
    if (n_decoding > 0 && n_decoding < runner_->last_rows()) {
      const StepCosts& costs = core_->costs();
      const int64_t bound =
          std::max({core_->options().limits.gap_ns_max, costs.ns({n_decoding, 0}) * 5 / 4,
                    costs.ns({n_decoding + 1, 0})});
      expect(runner_->last_ns() <= bound + bound / 50, "a stream waits longer than it may");
    }
  }

  std::mt19937_64 random_;
  const FakeRunner::Fault fault_;
  bool has_host_ = false;  // memory below the prefix tree's
  VirtualClock clock_;
  CoreOptions options_;
  FakeRunner::Costs costs_;
  std::string folder_;  // of the prefix files; empty: none
  uint64_t disk_bytes_ = 100'000, write_bytes_per_s_ = 1'000'000;
  std::unique_ptr<PrefixFiles> files_;
  SideWorkByHand side_;
  int64_t n_ended_ = 0;
  std::unique_ptr<FakeRunner> runner_;
  std::unique_ptr<EngineCore> core_;
  std::vector<int32_t> system_;
  std::deque<std::vector<int32_t>> history_;
  std::vector<std::pair<Engine::RequestId, std::shared_ptr<Client>>> open_;
  SimReport report_;
};

}  // namespace roost::testing
