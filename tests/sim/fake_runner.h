// A model whose state is a hash of its history: every wrong page, state, replayed row or position
// changes what it says. Time passes as it runs.
#pragma once

#include <array>
#include <cstring>
#include <random>
#include <vector>

#include "base/check.h"
#include "base/clock.h"
#include "engine/memory_plan.h"
#include "engine/step_runner.h"

namespace roost::testing {

class VirtualClock final : public Clock {
 public:
  int64_t now_ns() const override { return now_ns_; }
  int64_t unix_seconds() const override { return now_ns_ / 1'000'000'000; }
  void advance(int64_t ns) { now_ns_ += ns; }

 private:
  int64_t now_ns_ = 1;
};

// Of a model without states and pages; what it draws is left to say.
class StatelessRunner : public StepRunner {
 public:
  void reset_slot(int32_t) override {}
  void replay(int32_t, int32_t) override {}
  void save_state(int32_t, int32_t) override {}
  bool load_state(int32_t, int32_t) override { return true; }
  void copy_page(int32_t, int32_t) override {}
  size_t page_bytes() const override { return 1; }
  size_t snapshot_bytes() const override { return 1; }
  void read_page(int32_t, std::span<std::byte>) const override {}
  void write_page(int32_t, std::span<const std::byte>) override {}
  void read_snapshot(int32_t, std::span<std::byte>) const override {}
  void write_snapshot(int32_t, std::span<const std::byte>) override {}
};

inline uint64_t mixed(uint64_t a, uint64_t b) {
  uint64_t x = (a ^ (b * 0x9E3779B97F4A7C15)) + 0xD1B54A32D192ED03;
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9;
  return x ^ (x >> 29);
}

// The arithmetic of the model, for anything that can say the K/V of a position.
struct FakeModel {
  static constexpr int32_t kVocabulary = 1000;
  static constexpr int32_t kEndToken = 0;
  static constexpr int32_t kPoison = 999;  // behind this token nothing is finite
  static constexpr uint64_t kNotFinite = ~uint64_t{0};

  // The state behind token t, which is also its K/V: of the state before, the token, and K/V of a
  // few earlier positions.
  template <class Kv>
  static uint64_t next(uint64_t state, int32_t token, int64_t t, const Kv& kv) {
    if (state == kNotFinite || token == kPoison) return kNotFinite;
    uint64_t h = mixed(state, static_cast<uint64_t>(token) + 1);
    if (t > 0) {
      h = mixed(h, kv(t - 1));
      h = mixed(h, kv(static_cast<int64_t>(h % static_cast<uint64_t>(t))));
      h = mixed(h, kv(static_cast<int64_t>(mixed(h, 3) % static_cast<uint64_t>(t))));
    }
    return h == kNotFinite ? 0 : h;
  }
  // The token drawn behind token t: reads every position.
  template <class Kv>
  static int32_t draw(uint64_t state, int64_t t, const SampleParams& sampling, const Kv& kv) {
    if (state == kNotFinite) return -1;
    uint64_t sum = 0;
    for (int64_t i = 0; i <= t; ++i) sum += kv(i) * (2 * static_cast<uint64_t>(i) + 1);
    const uint64_t h = mixed(mixed(state, sum), mixed(sampling.seed, static_cast<uint64_t>(t)));
    ROOST_CHECK(sampling.position == t + 1);
    return static_cast<int32_t>(h % (kVocabulary - 1));
  }

  // What an engine must say to a prompt, computed without one.
  static std::vector<int32_t> reply_of(const std::vector<int32_t>& prompt, uint64_t seed,
                                       int64_t n_max) {
    std::vector<uint64_t> kv;
    std::vector<int32_t> reply;
    uint64_t state = 1;
    const auto at = [&](int64_t t) { return kv[static_cast<size_t>(t)]; };
    const auto feed = [&](int32_t token) {
      state = next(state, token, static_cast<int64_t>(kv.size()), at);
      kv.push_back(state);
    };
    for (const int32_t token : prompt) feed(token);
    while (static_cast<int64_t>(reply.size()) < n_max) {
      const auto n = static_cast<int64_t>(kv.size());
      const int32_t token = draw(state, n - 1, {.seed = seed, .position = n}, at);
      if (token < 0 || token == kEndToken) break;
      reply.push_back(token);
      feed(token);
    }
    return reply;
  }
};

class FakeRunner final : public StepRunner {
  using Page = std::array<uint64_t, kPageTokens>;
  struct Slot {
    uint64_t state = 1;
    // Of the rows behind the state: their tokens, and the states behind them.
    std::array<int32_t, kReplayRowsMax> store{};
    std::array<uint64_t, kReplayRowsMax> states{};
    int32_t n_stored_rows = 0;
  };
  template <class T>
  static T& at(std::vector<T>& all, int32_t i) {
    return all[static_cast<size_t>(i)];
  }
  auto kv_of(const RowSpan& span) const {
    return [this, &span](int64_t t) {
      return pages_[static_cast<size_t>(span.page_table[t / kPageTokens])]
                   [static_cast<size_t>(t % kPageTokens)];
    };
  }

 public:
  // What a runner or its caller could get wrong; see the test that the simulation sees each.
  enum class Fault {
    kNone,
    kPageNotCopied,
    kStateOfAnother,
    kReplayLost,
    kStateStoredLate,
    kPageNotRestored,
    kStateNotRestored
  };

  struct Costs {
    int64_t step_ns = 5'000'000, row_ns = 300'000;
    int64_t attended_ns = 0;  // of each token in front of each row
    double noise = 0;         // share by which a step may take longer, evenly
  };
  FakeRunner(int32_t n_pages, int32_t n_slots, int32_t n_snapshots, VirtualClock& clock,
             Costs costs)
      : pages_(static_cast<size_t>(n_pages)),
        slots_(static_cast<size_t>(n_slots)),
        snapshots_(static_cast<size_t>(n_snapshots)),
        clock_(clock),
        costs_(costs) {
    for (Slot& slot : slots_) slot.state = 0xDEAD;  // of nobody: must be reset or loaded
  }

  void run(const StepRows& rows, std::span<int32_t> drawn) override {
    last_rows_ = static_cast<int64_t>(rows.tokens.size());
    int64_t n_attended = 0;
    for (const RowSpan& span : rows.rows) n_attended += int64_t{span.n_rows} * span.first_index;
    last_ns_ = costs_.step_ns + costs_.row_ns * last_rows_ + costs_.attended_ns * n_attended;
    last_ns_ += static_cast<int64_t>(static_cast<double>(last_ns_) * costs_.noise *
                                     std::uniform_real_distribution<>()(random_));
    clock_.advance(last_ns_);
    n_last_decoding_ = 0;
    std::vector<uint64_t> state_of_row(rows.tokens.size());
    int32_t n_packed = 0;
    ROOST_CHECK(rows.rows.size() == rows.delta_rows.size());
    for (size_t i = 0; i < rows.rows.size(); ++i) {
      ROOST_CHECK(rows.delta_rows[i].first_packed == n_packed);
      n_packed += rows.delta_rows[i].n_packed();
      run_span(rows, rows.rows[i], rows.delta_rows[i], state_of_row);
    }
    for (size_t i = 0; i < rows.logit_rows.size(); ++i) {
      const auto row = static_cast<size_t>(rows.logit_rows[i]);
      for (const RowSpan& span : rows.rows) {
        const auto first = static_cast<size_t>(span.first_row);
        if (row < first || row >= first + static_cast<size_t>(span.n_rows)) continue;
        const int64_t t = span.first_index + static_cast<int64_t>(row - first);
        n_last_decoding_ += span.n_rows == 1;
        drawn[i] = FakeModel::draw(state_of_row[row], t, rows.sampling[i], kv_of(span));
      }
    }
  }

  void reset_slot(int32_t slot) override { at(slots_, slot) = {}; }
  void replay(int32_t slot, int32_t n_rows) override {
    Slot& s = at(slots_, slot);
    ROOST_CHECK(n_rows >= 1 && n_rows <= s.n_stored_rows);
    s.state = s.states[static_cast<size_t>(n_rows) - 1] ^ (fault_ == Fault::kReplayLost);
    s.n_stored_rows -= n_rows;
    std::copy_n(s.store.begin() + n_rows, s.n_stored_rows, s.store.begin());
    std::copy_n(s.states.begin() + n_rows, s.n_stored_rows, s.states.begin());
  }
  void save_state(int32_t slot, int32_t snapshot) override {
    at(snapshots_, snapshot) = at(slots_, slot).state;
  }
  bool load_state(int32_t snapshot, int32_t slot) override {
    if (fault_ == Fault::kStateOfAnother)
      snapshot = (snapshot + 1) % static_cast<int32_t>(snapshots_.size());
    at(slots_, slot) = {.state = at(snapshots_, snapshot)};
    return at(snapshots_, snapshot) != FakeModel::kNotFinite;
  }
  void copy_page(int32_t from, int32_t to) override {
    if (fault_ != Fault::kPageNotCopied) at(pages_, to) = at(pages_, from);
  }

  size_t page_bytes() const override { return sizeof(Page); }
  size_t snapshot_bytes() const override { return sizeof(uint64_t); }
  void read_page(int32_t page, std::span<std::byte> to) const override {
    std::memcpy(to.data(), &pages_[static_cast<size_t>(page)], sizeof(Page));
  }
  void write_page(int32_t page, std::span<const std::byte> from) override {
    if (fault_ != Fault::kPageNotRestored)
      std::memcpy(&at(pages_, page), from.data(), sizeof(Page));
  }
  void read_snapshot(int32_t snapshot, std::span<std::byte> to) const override {
    std::memcpy(to.data(), &snapshots_[static_cast<size_t>(snapshot)], sizeof(uint64_t));
  }
  void write_snapshot(int32_t snapshot, std::span<const std::byte> from) override {
    if (fault_ != Fault::kStateNotRestored)
      std::memcpy(&at(snapshots_, snapshot), from.data(), sizeof(uint64_t));
  }
  std::string name() const override { return "fake"; }

  void plant(Fault fault) { fault_ = fault; }
  int64_t last_rows() const { return last_rows_; }
  int64_t last_ns() const { return last_ns_; }
  // Sequences of the last step that brought the one row that they missed.
  int64_t n_last_decoding() const { return n_last_decoding_; }
  // A bit of a kept state turns: what a damaged memory would do.
  void spoil_snapshot(int32_t snapshot) { at(snapshots_, snapshot) = FakeModel::kNotFinite; }

 private:
  // Replayed rows advance the state only; their K/V was written by the step that ran them.
  void run_span(const StepRows& rows, const RowSpan& span, const DeltaSpan& delta,
                std::vector<uint64_t>& state_of_row) {
    Slot& slot = at(slots_, delta.slot);
    ROOST_CHECK(delta.n_replay <= slot.n_stored_rows && delta.n_new == span.n_rows);
    ROOST_CHECK(delta.store_after >= 0 && delta.n_packed() - delta.store_after <= kReplayRowsMax);
    const auto kv = kv_of(span);
    uint64_t state = slot.state;
    if (fault_ == Fault::kReplayLost && delta.n_replay > 0) slot.store[0] ^= 1;
    std::vector<int32_t> packed(slot.store.begin(), slot.store.begin() + delta.n_replay);
    packed.insert(packed.end(), rows.tokens.begin() + span.first_row,
                  rows.tokens.begin() + span.first_row + span.n_rows);
    for (int32_t p = 0; p <= delta.n_packed(); ++p) {
      const bool is_late = fault_ == Fault::kStateStoredLate && p == delta.n_packed();
      if (p == delta.store_after || is_late) slot.state = state;
      if (p == delta.n_packed()) break;
      const int64_t t = span.first_index - delta.n_replay + p;
      state = FakeModel::next(state, packed[static_cast<size_t>(p)], t, kv);
      if (p >= delta.store_after) slot.states[static_cast<size_t>(p - delta.store_after)] = state;
      if (p < delta.n_replay) continue;
      const int32_t row = span.first_row + p - delta.n_replay;
      ROOST_CHECK(rows.positions[static_cast<size_t>(3 * row)] == t);
      pages_[static_cast<size_t>(span.page_table[t / kPageTokens])]
            [static_cast<size_t>(t % kPageTokens)] = state;
      state_of_row[static_cast<size_t>(row)] = state;
    }
    slot.n_stored_rows = delta.n_packed() - delta.store_after;
    std::copy(packed.begin() + delta.store_after, packed.end(), slot.store.begin());
  }

  std::vector<Page> pages_;
  std::vector<Slot> slots_;
  std::vector<uint64_t> snapshots_;
  VirtualClock& clock_;
  const Costs costs_;
  std::mt19937_64 random_{1};
  Fault fault_ = Fault::kNone;
  int64_t last_rows_ = 0, last_ns_ = 0, n_last_decoding_ = 0;
};

}  // namespace roost::testing
