// Subset construction, products and trimming.
#include "grammar/byte_dfa.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <unordered_map>

#include "base/check.h"

namespace roost {

namespace {

Result<void> take(int64_t& left, int64_t n, Refusal refusal, const char* what, int64_t limit) {
  left -= n;
  if (left >= 0) return {};
  return Error{refusal, fmt::format("more than {} {}", limit, what)};
}

struct WordsHash {
  size_t operator()(const std::vector<int32_t>& words) const {
    uint64_t hash = 0xCBF29CE484222325u;
    for (const int32_t word : words)
      hash = (hash ^ static_cast<uint32_t>(word)) * 0x9E3779B97F4A7C15u;
    return hash ^ (hash >> 29);
  }
};

using StateIds = std::unordered_map<std::vector<int32_t>, int32_t, WordsHash>;

}  // namespace

Result<void> GrammarBudget::take_states(int64_t n) {
  return take(states_left, n, refusal, "states", limits::kGrammarStatesMax);
}

Result<void> GrammarBudget::take_table(int64_t n) {
  return take(table_left, n, refusal, "transitions", limits::kGrammarTableMax);
}

Result<void> GrammarBudget::take_steps(int64_t n) {
  return take(steps_left, n, refusal, "steps of compilation", limits::kGrammarStepsMax);
}

bool ByteDfa::has_way_on(int32_t state) const {
  const auto row = next.begin() + static_cast<ptrdiff_t>(state) * n_classes;
  return std::any_of(row, row + n_classes, [](int32_t to) { return to != kDead; });
}

bool ByteDfa::accepts_text(std::string_view text) const {
  if (accepts_nothing()) return false;
  int32_t state = 0;
  for (const char c : text) {
    state = step(state, static_cast<uint8_t>(c));
    if (state == kDead) return false;
  }
  return accepts(state);
}

int32_t ByteNfa::add_anywhere() {
  const int32_t state = add_state();
  add_empty(0, state);
  add_edge(state, 0x00, 0xFF, state);
  return state;
}

int32_t ByteNfa::add_state() {
  states_.emplace_back();
  return static_cast<int32_t>(states_.size() - 1);
}

void ByteNfa::add_edge(int32_t from, uint8_t low, uint8_t high, int32_t to) {
  states_[static_cast<size_t>(from)].edges.push_back({low, high, to});
}

void ByteNfa::add_empty(int32_t from, int32_t to) {
  states_[static_cast<size_t>(from)].empties.push_back(to);
}

void ByteNfa::accept(int32_t state, int32_t tag) {
  states_[static_cast<size_t>(state)].tag = tag;
}

int32_t ByteNfa::add_text(int32_t from, std::string_view text) {
  for (const char c : text) {
    const int32_t to = add_state();
    add_edge(from, static_cast<uint8_t>(c), static_cast<uint8_t>(c), to);
    from = to;
  }
  return from;
}

// One run of the subset construction.
class SubsetConstruction {
 public:
  SubsetConstruction(const ByteNfa& nfa, GrammarBudget& budget)
      : nfa_(nfa), budget_(budget), stamps_(nfa.states_.size(), 0) {}

  Result<ByteDfa> run() {
    find_classes();
    ROOST_TRY_DO(budget_.take_states(static_cast<int64_t>(nfa_.states_.size())));
    ROOST_TRY_DO(add_subset({0}).second);
    const auto n_classes = static_cast<size_t>(dfa_.n_classes);
    std::vector<std::vector<int32_t>> targets(n_classes);
    for (size_t state = 0; state < subsets_.size(); ++state) {
      for (auto& list : targets) list.clear();
      for (const int32_t member : *subsets_[state]) {
        for (const ByteNfa::Edge& edge : nfa_.states_[static_cast<size_t>(member)].edges) {
          ROOST_TRY_DO(budget_.take_steps(dfa_.class_of[edge.high] - dfa_.class_of[edge.low] + 1));
          for (size_t c = dfa_.class_of[edge.low]; c <= dfa_.class_of[edge.high]; ++c)
            targets[c].push_back(edge.to);
        }
      }
      for (size_t c = 0; c < n_classes; ++c) {
        if (targets[c].empty()) continue;
        // Neighbours differ where some other state tells them apart, and mostly not here.
        if (c > 0 && targets[c] == targets[c - 1]) {
          dfa_.next[state * n_classes + c] = dfa_.next[state * n_classes + c - 1];
          continue;
        }
        const auto [id, result] = add_subset(targets[c]);
        ROOST_TRY_DO(result);
        dfa_.next[state * n_classes + c] = id;
      }
    }
    return trim(dfa_);
  }

 private:
  void find_classes() {
    std::array<bool, 257> begins{};
    for (const ByteNfa::State& state : nfa_.states_) {
      for (const ByteNfa::Edge& edge : state.edges) {
        begins[edge.low] = true;
        begins[edge.high + 1u] = true;
      }
    }
    int32_t n = 0;
    for (size_t byte = 0; byte < 256; ++byte) {
      if (byte > 0 && begins[byte]) ++n;
      dfa_.class_of[byte] = static_cast<uint8_t>(n);
    }
    dfa_.n_classes = n + 1;
  }

  // Everything reached from these states without a byte, sorted.
  std::vector<int32_t> closure_of(const std::vector<int32_t>& from) {
    ++stamp_;
    std::vector<int32_t> reached;
    const auto visit = [&](int32_t state) {
      if (stamps_[static_cast<size_t>(state)] == stamp_) return;
      stamps_[static_cast<size_t>(state)] = stamp_;
      reached.push_back(state);
    };
    for (const int32_t state : from) visit(state);
    for (size_t i = 0; i < reached.size(); ++i)
      for (const int32_t to : nfa_.states_[static_cast<size_t>(reached[i])].empties) visit(to);
    // States without a byte and without acceptance tell nothing apart.
    std::erase_if(reached, [&](int32_t state) {
      const ByteNfa::State& s = nfa_.states_[static_cast<size_t>(state)];
      return s.edges.empty() && s.tag == ByteDfa::kDead;
    });
    std::sort(reached.begin(), reached.end());
    return reached;
  }

  std::pair<int32_t, Result<void>> add_subset(const std::vector<int32_t>& from) {
    std::vector<int32_t> subset = closure_of(from);
    if (Result<void> left = budget_.take_steps(static_cast<int64_t>(from.size() + subset.size()));
        !left)
      return {0, left};
    const auto [it, is_new] = ids_.try_emplace(std::move(subset), subsets_.size());
    if (!is_new) return {it->second, {}};
    subsets_.push_back(&it->first);
    int32_t tag = INT32_MAX;
    for (const int32_t member : it->first) {
      const int32_t own = nfa_.states_[static_cast<size_t>(member)].tag;
      if (own != ByteDfa::kDead) tag = std::min(tag, own);
    }
    dfa_.tags.push_back(tag == INT32_MAX ? ByteDfa::kDead : tag);
    dfa_.next.resize(dfa_.next.size() + static_cast<size_t>(dfa_.n_classes), ByteDfa::kDead);
    Result<void> left = budget_.take_states(1);
    if (left) left = budget_.take_table(dfa_.n_classes);
    return {it->second, left};
  }

  const ByteNfa& nfa_;
  GrammarBudget& budget_;
  ByteDfa dfa_;
  StateIds ids_;
  std::vector<const std::vector<int32_t>*> subsets_;  // keys of ids_, by id
  std::vector<int32_t> stamps_;
  int32_t stamp_ = 0;
};

Result<ByteDfa> ByteNfa::determinize(GrammarBudget& budget) const {
  return SubsetConstruction(*this, budget).run();
}

ByteDfa trim(const ByteDfa& dfa) {
  const size_t n = dfa.tags.size();
  const auto n_classes = static_cast<size_t>(dfa.n_classes);
  std::vector<std::vector<int32_t>> before(n);
  for (size_t state = 0; state < n; ++state) {
    for (size_t c = 0; c < n_classes; ++c) {
      const int32_t to = dfa.next[state * n_classes + c];
      if (to != ByteDfa::kDead)
        before[static_cast<size_t>(to)].push_back(static_cast<int32_t>(state));
    }
  }
  std::vector<bool> is_live(n);
  std::vector<int32_t> work;
  const auto mark = [&](size_t state) {
    if (is_live[state]) return;
    is_live[state] = true;
    work.push_back(static_cast<int32_t>(state));
  };
  for (size_t state = 0; state < n; ++state)
    if (dfa.tags[state] != ByteDfa::kDead) mark(state);
  while (!work.empty()) {
    const auto state = static_cast<size_t>(work.back());
    work.pop_back();
    for (const int32_t from : before[state]) mark(static_cast<size_t>(from));
  }

  ByteDfa out;
  out.class_of = dfa.class_of;
  out.n_classes = dfa.n_classes;
  if (n == 0 || !is_live[0]) return out;
  std::vector<int32_t> number(n, ByteDfa::kDead);
  std::vector<size_t> order{0};
  number[0] = 0;
  for (size_t i = 0; i < order.size(); ++i) {
    out.tags.push_back(dfa.tags[order[i]]);
    for (size_t c = 0; c < n_classes; ++c) {
      const int32_t to = dfa.next[order[i] * n_classes + c];
      if (to == ByteDfa::kDead || !is_live[static_cast<size_t>(to)]) {
        out.next.push_back(ByteDfa::kDead);
        continue;
      }
      if (number[static_cast<size_t>(to)] == ByteDfa::kDead) {
        number[static_cast<size_t>(to)] = static_cast<int32_t>(order.size());
        order.push_back(static_cast<size_t>(to));
      }
      out.next.push_back(number[static_cast<size_t>(to)]);
    }
  }
  return out;
}

namespace {

// Classes that none of the automata tells apart.
void join_classes(const std::vector<const ByteDfa*>& all, ByteDfa& out) {
  std::map<std::vector<uint8_t>, uint8_t> ids;
  for (size_t byte = 0; byte < 256; ++byte) {
    std::vector<uint8_t> key;
    for (const ByteDfa* dfa : all) key.push_back(dfa->class_of[byte]);
    const auto id = ids.try_emplace(std::move(key), static_cast<uint8_t>(ids.size())).first;
    out.class_of[byte] = id->second;
  }
  out.n_classes = static_cast<int32_t>(ids.size());
}

}  // namespace

Result<ByteDfa> product(const std::vector<const ByteDfa*>& needed,
                        const std::vector<const ByteDfa*>& asked, GrammarBudget& budget) {
  ROOST_CHECK(!needed.empty() && asked.size() <= 16);
  ByteDfa out;
  for (const ByteDfa* dfa : needed)
    if (dfa->accepts_nothing()) return out;
  std::vector<const ByteDfa*> all = needed;
  all.insert(all.end(), asked.begin(), asked.end());
  join_classes(all, out);
  std::vector<uint8_t> byte_of(static_cast<size_t>(out.n_classes));
  for (size_t byte = 0; byte < 256; ++byte)
    byte_of[out.class_of[byte]] = static_cast<uint8_t>(byte);

  std::vector<int32_t> start;
  for (const ByteDfa* dfa : all) start.push_back(dfa->accepts_nothing() ? ByteDfa::kDead : 0);
  StateIds ids;
  std::vector<const std::vector<int32_t>*> states;
  states.push_back(&ids.try_emplace(start, 0).first->first);
  for (size_t i = 0; i < states.size(); ++i) {
    ROOST_TRY_DO(budget.take_states(1));
    ROOST_TRY_DO(budget.take_table(out.n_classes));
    ROOST_TRY_DO(budget.take_steps(out.n_classes * static_cast<int64_t>(all.size())));
    int32_t tag = 0;
    for (size_t k = 0; k < all.size(); ++k) {
      const int32_t state = (*states[i])[k];
      const bool accepts = state != ByteDfa::kDead && all[k]->accepts(state);
      if (k < needed.size() && !accepts) tag = ByteDfa::kDead;
      if (k >= needed.size() && accepts && tag >= 0) tag |= 1 << (k - needed.size());
    }
    out.tags.push_back(tag);
    for (const uint8_t byte : byte_of) {
      std::vector<int32_t> to;
      bool is_dead = false;
      for (size_t k = 0; k < all.size(); ++k) {
        const int32_t state = (*states[i])[k];
        to.push_back(state == ByteDfa::kDead ? state : all[k]->step(state, byte));
        is_dead |= k < needed.size() && to.back() == ByteDfa::kDead;
      }
      if (is_dead) {
        out.next.push_back(ByteDfa::kDead);
        continue;
      }
      const auto [it, is_new] = ids.try_emplace(std::move(to), static_cast<int32_t>(states.size()));
      if (is_new) states.push_back(&it->first);
      out.next.push_back(it->second);
    }
  }
  return trim(out);
}

Result<ByteDfa> literal_dfa(const std::vector<std::string>& texts, GrammarBudget& budget) {
  ByteNfa nfa;
  std::map<std::pair<int32_t, char>, int32_t> ways;  // shared beginnings stay one path
  for (const std::string& text : texts) {
    int32_t at = 0;
    for (const char c : text) {
      const auto [it, is_new] = ways.try_emplace({at, c}, 0);
      if (is_new) it->second = nfa.add_text(at, std::string_view(&c, 1));
      at = it->second;
    }
    nfa.accept(at, 0);
  }
  return nfa.determinize(budget);
}

namespace {

// No byte leads out of the states for which `is_last` says so, none into those of `is_never`.
template <class Last, class Never>
ByteDfa cut(ByteDfa dfa, const Last& is_last, const Never& is_never) {
  const auto n_classes = static_cast<size_t>(dfa.n_classes);
  for (size_t i = 0; i < dfa.next.size(); ++i) {
    int32_t& to = dfa.next[i];
    const bool is_dead = to == ByteDfa::kDead || is_last(dfa.tags[i / n_classes]) ||
                         is_never(dfa.tags[static_cast<size_t>(to)]);
    if (is_dead) to = ByteDfa::kDead;
  }
  return trim(dfa);
}

}  // namespace

Result<ByteDfa> until_found(const ByteNfa& finds, GrammarBudget& budget) {
  ROOST_TRY(ByteDfa dfa, finds.determinize(budget));
  return cut(
      std::move(dfa), [](int32_t tag) { return tag != ByteDfa::kDead; },
      [](int32_t tag) { return tag == kNeverFind; });
}

Result<ByteDfa> without_finds(const ByteNfa& finds, GrammarBudget& budget) {
  ROOST_TRY(ByteDfa dfa, finds.determinize(budget));
  for (int32_t& tag : dfa.tags) tag = tag == ByteDfa::kDead ? 0 : ByteDfa::kDead;
  return cut(
      std::move(dfa), [](int32_t) { return false; },
      [](int32_t tag) { return tag == ByteDfa::kDead; });
}

bool is_endless_everywhere(const ByteDfa& dfa) {
  // A state is fine when it leads to a cycle: take away, again and again, those that lead nowhere.
  const size_t n = dfa.tags.size();
  const auto n_classes = static_cast<size_t>(dfa.n_classes);
  std::vector<std::vector<int32_t>> before(n);
  std::vector<size_t> n_ways(n, 0);
  for (size_t state = 0; state < n; ++state) {
    for (size_t c = 0; c < n_classes; ++c) {
      const int32_t to = dfa.next[state * n_classes + c];
      if (to == ByteDfa::kDead) continue;
      before[static_cast<size_t>(to)].push_back(static_cast<int32_t>(state));
      ++n_ways[state];
    }
  }
  std::vector<int32_t> work;
  size_t n_ending = 0;
  for (size_t state = 0; state < n; ++state)
    if (n_ways[state] == 0) work.push_back(static_cast<int32_t>(state));
  while (!work.empty()) {
    const auto state = static_cast<size_t>(work.back());
    work.pop_back();
    n_ending += dfa.tags[state] == ByteDfa::kDead || state == 0;
    for (const int32_t from : before[state])
      if (--n_ways[static_cast<size_t>(from)] == 0) work.push_back(from);
  }
  return n > 0 && n_ending == 0;
}

}  // namespace roost
