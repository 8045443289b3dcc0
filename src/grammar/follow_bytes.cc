// First and following bytes of rules, as parser generators find them: passes over all rules until
// nothing changes.
#include "grammar/follow_bytes.h"

#include <algorithm>
#include <vector>

namespace roost {

namespace {

// Rules stand near those that they are made of: few passes do. A grammar that needs more, or that
// is so large that the sets are no trifle, has no bound.
constexpr int kPassesMax = 24;
constexpr size_t kRulesMax = 65'536;

class FollowBytes {
 public:
  explicit FollowBytes(const Automaton& automaton) : rules_(automaton.rules) {
    if (rules_.size() > kRulesMax) {
      any_.set();
      return;
    }
    facts_.resize(rules_.size());
    for (RuleId id = 0; id < rules_.size(); ++id) set_known(id, automaton);
    is_done_ = settle([this](RuleId id) { return set_first(id); }) &&
               settle([this](RuleId id) { return set_follow(id); });
  }

  std::map<const ByteDfa*, ByteSet> by_automaton() const {
    std::map<const ByteDfa*, ByteSet> out;
    for (RuleId id = 0; id < rules_.size(); ++id) {
      const Rule& rule = rules_[id];
      if (rule.dfa) out[rule.dfa.get()] |= is_done_ ? facts_[id].follow : any_;
      if (rule.object && rule.object->other_keys) out[rule.object->other_keys.get()] = any_;
    }
    return out;
  }

 private:
  struct Facts {
    ByteSet first, follow;
    bool may_be_empty = false;
  };

  static void add_first(const ByteDfa& dfa, ByteSet& out) {
    for (size_t byte = 0; byte < out.size() && !dfa.accepts_nothing(); ++byte)
      if (dfa.step(0, static_cast<uint8_t>(byte)) != ByteDfa::kDead) out.set(byte);
  }

  // What does not depend on other rules.
  void set_known(RuleId id, const Automaton& automaton) {
    const Rule& rule = rules_[id];
    Facts& facts = facts_[id];
    if (rule.dfa) {
      add_first(*rule.dfa, facts.first);
      facts.may_be_empty = !rule.dfa->accepts_nothing() && rule.dfa->accepts(0);
    }
    // Reasoning begins a reply and stands behind nothing.
    const auto& free = automaton.free_texts;
    if (std::find(free.begin(), free.end(), id) == free.end()) any_ |= facts.first;
    if (!rule.object) return;
    if (rule.object->other_keys) add_first(*rule.object->other_keys, any_);
    if (rule.object->keys.empty()) return;
    for (const auto& [byte, node] : rule.object->keys[0].next) any_.set(byte);
  }

  // Up and down by turns: rules are made of earlier ones as well as of later ones.
  template <class Step>
  bool settle(const Step& step) {
    for (int pass = 0; pass < kPassesMax; ++pass) {
      bool has_changed = false;
      for (size_t i = 0; i < rules_.size(); ++i)
        has_changed |= step(static_cast<RuleId>(pass % 2 == 0 ? i : rules_.size() - 1 - i));
      if (!has_changed) return true;
    }
    return false;
  }

  bool set_first(RuleId id) {
    const Rule& rule = rules_[id];
    Facts& facts = facts_[id];
    const Facts before = facts;
    switch (rule.kind) {
      case RuleKind::kBytes:
        return false;
      case RuleKind::kSequence:
        facts.may_be_empty = true;
        for (const RuleId child : rule.children) {
          if (facts.may_be_empty) facts.first |= facts_[child].first;
          facts.may_be_empty = facts.may_be_empty && facts_[child].may_be_empty;
        }
        break;
      case RuleKind::kRepeat:
        facts.may_be_empty = rule.min == 0;
        [[fallthrough]];
      case RuleKind::kChoice:
      case RuleKind::kCall:
        for (const RuleId child : rule.children) {
          facts.first |= facts_[child].first;
          facts.may_be_empty = facts.may_be_empty || facts_[child].may_be_empty;
        }
        break;
      case RuleKind::kObject:
        facts.first |= first_of_bracket(rule.object->punctuation.open_object);
        break;
      case RuleKind::kArray:
        facts.first |= first_of_bracket(rule.array->punctuation.open_array);
        break;
    }
    return facts.first != before.first || facts.may_be_empty != before.may_be_empty;
  }

  // Calls have no bracket in front of what they hold.
  ByteSet first_of_bracket(RuleId id) const {
    return facts_[id].may_be_empty ? facts_[id].first | any_ : facts_[id].first;
  }

  bool add_follow(RuleId id, const ByteSet& bytes) {
    if (id == kNoRule || (bytes & ~facts_[id].follow).none()) return false;
    facts_[id].follow |= bytes;
    return true;
  }

  // What follows the rule follows the last of those that it is made of.
  bool set_follow(RuleId id) {
    const Rule& rule = rules_[id];
    ByteSet behind = facts_[id].follow;
    bool has_changed = false;
    switch (rule.kind) {
      case RuleKind::kBytes:
        break;
      case RuleKind::kSequence:
        for (size_t i = rule.children.size(); i-- > 0;) {
          const Facts& child = facts_[rule.children[i]];
          has_changed |= add_follow(rule.children[i], behind);
          if (!child.may_be_empty) behind.reset();
          behind |= child.first;
        }
        break;
      case RuleKind::kRepeat:
        if (rule.max > 1) behind |= facts_[rule.children[0]].first;
        [[fallthrough]];
      case RuleKind::kChoice:
      case RuleKind::kCall:
        for (const RuleId child : rule.children) has_changed |= add_follow(child, behind);
        break;
      case RuleKind::kObject: {
        const ObjectRule& object = *rule.object;
        for (const ObjectRule::Property& property : object.properties)
          has_changed |= add_follow(property.value, any_);
        for (const RuleId value : object.other_values) has_changed |= add_follow(value, any_);
        has_changed |= let_anything_follow(object.punctuation);
        break;
      }
      case RuleKind::kArray: {
        const ArrayRule& array = *rule.array;
        for (const auto* items : {&array.first_items, &array.distinct_items})
          for (const RuleId item : *items) has_changed |= add_follow(item, any_);
        has_changed |= add_follow(array.items, any_);
        has_changed |= let_anything_follow(array.punctuation);
        break;
      }
    }
    return has_changed;
  }

  bool let_anything_follow(const Punctuation& p) {
    bool has_changed = false;
    for (const RuleId id : {p.open_object, p.close_object, p.close_empty_object, p.open_array,
                            p.close_array, p.close_empty_array, p.comma, p.colon})
      has_changed |= add_follow(id, any_);
    return has_changed;
  }

  const std::vector<Rule>& rules_;
  std::vector<Facts> facts_;
  ByteSet any_;  // with which anything in the grammar can begin
  bool is_done_ = false;
};

}  // namespace

std::map<const ByteDfa*, ByteSet> follow_bytes(const Automaton& automaton) {
  return FollowBytes(automaton).by_automaton();
}

}  // namespace roost
