// Finite automata over bytes: deterministic ones, and how they are made.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/limits.h"
#include "base/result.h"

namespace roost {

// What one compilation may still use. Everything that grows takes its share first.
struct GrammarBudget {
  Refusal refusal = Refusal::GrammarTooLarge;
  int64_t states_left = limits::kGrammarStatesMax;
  int64_t table_left = limits::kGrammarTableMax;  // entries of transition tables
  int64_t steps_left = limits::kGrammarStepsMax;

  // Refuses with `refusal` and the limit that is passed.
  Result<void> take_states(int64_t n);
  Result<void> take_table(int64_t n);
  Result<void> take_steps(int64_t n);
};

// Trimmed: every state reaches an accepting one, so a byte is refused as soon as nothing that
// follows could be accepted. State 0 is the start; no states: nothing is accepted.
struct ByteDfa {
  static constexpr int32_t kDead = -1;

  std::array<uint8_t, 256> class_of{};  // bytes that no state tells apart
  int32_t n_classes = 1;
  bool is_lasting = false;    // one object for the life of the program
  std::vector<int32_t> next;  // [states, n_classes]; kDead where there is no way
  std::vector<int32_t> tags;  // of each state: >= 0 when it accepts, kDead when not

  bool accepts_nothing() const { return tags.empty(); }
  int32_t step(int32_t state, uint8_t byte) const {
    return next[static_cast<size_t>(state) * static_cast<size_t>(n_classes) + class_of[byte]];
  }
  bool accepts(int32_t state) const { return tags[static_cast<size_t>(state)] >= 0; }
  bool has_way_on(int32_t state) const;
  bool accepts_text(std::string_view text) const;
  size_t n_bytes() const { return (next.size() + tags.size()) * sizeof(int32_t); }
};

// A nondeterministic automaton under construction. State 0 is the start.
class ByteNfa {
 public:
  ByteNfa() { add_state(); }
  int32_t add_state();
  void add_edge(int32_t from, uint8_t low, uint8_t high, int32_t to);
  void add_empty(int32_t from, int32_t to);
  void accept(int32_t state, int32_t tag);                // the lowest tag wins where several meet
  int32_t add_text(int32_t from, std::string_view text);  // the state behind it
  int32_t add_anywhere();  // a state reached by any bytes, and by none
  size_t n_states() const { return states_.size(); }

  Result<ByteDfa> determinize(GrammarBudget& budget) const;

 private:
  struct Edge {
    uint8_t low, high;
    int32_t to;
  };
  struct State {
    std::vector<Edge> edges;
    std::vector<int32_t> empties;
    int32_t tag = ByteDfa::kDead;
  };
  friend class SubsetConstruction;

  std::vector<State> states_;
};

// Drops the states from which nothing is accepted or that are not reached, and renumbers.
ByteDfa trim(const ByteDfa& dfa);

// Texts that every one of `needed` accepts. The tag has a bit for each of `asked` that accepts too.
// At least one is needed, at most 16 asked.
Result<ByteDfa> product(const std::vector<const ByteDfa*>& needed,
                        const std::vector<const ByteDfa*>& asked, GrammarBudget& budget);

// Exactly these texts; tag 0.
Result<ByteDfa> literal_dfa(const std::vector<std::string>& texts, GrammarBudget& budget);

// A search for what `finds` accepts; its texts begin behind any bytes (ByteNfa::add_anywhere).
// Any bytes up to and with the first find. A find of the tag kNeverFind is never made.
inline constexpr int32_t kNeverFind = 1 << 30;
Result<ByteDfa> until_found(const ByteNfa& finds, GrammarBudget& budget);
// Any bytes without a find.
Result<ByteDfa> without_finds(const ByteNfa& finds, GrammarBudget& budget);

// True when every state is followed by texts of any length.
bool is_endless_everywhere(const ByteDfa& dfa);

}  // namespace roost
