// Heights say what can be satisfied, and within how many levels.
#include "grammar/automaton.h"

#include <algorithm>

#include "grammar/regex.h"

namespace roost {

size_t Automaton::n_bytes() const {
  size_t n = sizeof(Automaton);
  for (const Rule& rule : rules) {
    n += sizeof(Rule) + rule.children.size() * sizeof(RuleId);
    if (rule.dfa) n += rule.dfa->n_bytes();
    if (rule.array) n += sizeof(ArrayRule) + rule.array->first_items.size() * sizeof(RuleId);
    if (!rule.object) continue;
    n += sizeof(ObjectRule) + rule.object->properties.size() * 16;
    if (rule.object->other_keys) n += rule.object->other_keys->n_bytes();
    for (const KeyNode& node : rule.object->keys)
      n += sizeof(KeyNode) + node.next.size() * 8 + node.properties.size() * 4;
  }
  return n;
}

DfaPtr lasting_dfa(Result<ByteDfa> dfa) {
  dfa->is_lasting = true;
  return std::make_shared<const ByteDfa>(*std::move(dfa));
}

namespace {

ByteNfa closing_marker() {
  ByteNfa nfa;
  nfa.accept(nfa.add_text(nfa.add_anywhere(), "</think>"), 0);
  return nfa;
}

Rule bytes_rule(DfaPtr dfa) {
  Rule rule{.kind = RuleKind::kBytes};
  rule.dfa = std::move(dfa);
  rule.height = 0;
  return rule;
}

}  // namespace

RuleId Automaton::add(Rule rule) {
  rules.push_back(std::move(rule));
  return static_cast<RuleId>(rules.size() - 1);
}

void Automaton::set_root(RuleId rule) {
  static const DfaPtr kReasoning = [] {
    GrammarBudget budget;
    return lasting_dfa(until_found(closing_marker(), budget));
  }();
  static const DfaPtr kNewlines = [] {
    GrammarBudget budget;
    return lasting_dfa(compile_regex("\\n{0,2}", {}, budget));
  }();
  root = rule;
  Rule whole{.kind = RuleKind::kSequence};
  free_texts.push_back(add(bytes_rule(kReasoning)));
  whole.children = {free_texts.back(), add(bytes_rule(kNewlines)), rule};
  whole.height = rules[rule].height;
  root_behind_reasoning = add(std::move(whole));
}

void Automaton::let_reasoning_be_the_whole() {
  static const DfaPtr kOpen = [] {
    GrammarBudget budget;
    return lasting_dfa(without_finds(closing_marker(), budget));
  }();
  Rule any{.kind = RuleKind::kChoice};
  any.height = 0;
  free_texts.push_back(add(bytes_rule(kOpen)));
  any.children = {free_texts.back(), root_behind_reasoning};
  root_behind_reasoning = add(std::move(any));
}

namespace {

void move_ids(std::vector<RuleId>& ids, RuleId by) {
  for (RuleId& id : ids)
    if (id != kNoRule) id += by;
}

void move_ids(Punctuation& p, RuleId by) {
  for (RuleId* id : {&p.open_object, &p.close_object, &p.close_empty_object, &p.open_array,
                     &p.close_array, &p.close_empty_array, &p.comma, &p.colon})
    if (*id != kNoRule) *id += by;
}

}  // namespace

Automaton either(Automaton first, Automaton second) {
  const auto by = static_cast<RuleId>(first.rules.size());
  for (Rule& rule : second.rules) {
    move_ids(rule.children, by);
    if (rule.object) {
      rule.object = std::make_shared<ObjectRule>(*rule.object);
      move_ids(rule.object->other_values, by);
      move_ids(rule.object->punctuation, by);
      for (ObjectRule::Property& property : rule.object->properties) property.value += by;
    }
    if (rule.array) {
      rule.array = std::make_shared<ArrayRule>(*rule.array);
      move_ids(rule.array->first_items, by);
      move_ids(rule.array->distinct_items, by);
      move_ids(rule.array->punctuation, by);
      if (rule.array->items != kNoRule) rule.array->items += by;
    }
    first.rules.push_back(std::move(rule));
  }
  move_ids(second.free_texts, by);
  first.free_texts.insert(first.free_texts.end(), second.free_texts.begin(),
                          second.free_texts.end());
  Rule any{.kind = RuleKind::kChoice};
  any.children = {first.root, second.root + by};
  any.height = std::min(first.rules[any.children[0]].height, first.rules[any.children[1]].height);
  first.levels_max = std::max(first.levels_max, second.levels_max);
  first.set_root(first.add(std::move(any)));
  return first;
}

Result<RuleId> AutomatonBuilder::add(Rule rule) {
  ROOST_TRY_DO(budget_.take_states(1 + static_cast<int64_t>(rule.children.size())));
  return automaton_.add(std::move(rule));
}

Result<RuleId> AutomatonBuilder::reserve() {
  return add(Rule{});
}

Result<RuleId> AutomatonBuilder::add_bytes(DfaPtr dfa) {
  Rule rule{.kind = RuleKind::kBytes};
  rule.dfa = std::move(dfa);
  return add(std::move(rule));
}

Result<RuleId> AutomatonBuilder::add_bytes(ByteDfa dfa) {
  return add_bytes(std::make_shared<const ByteDfa>(std::move(dfa)));
}

Result<RuleId> AutomatonBuilder::add_sequence(std::vector<RuleId> children) {
  Rule rule{.kind = RuleKind::kSequence};
  rule.children = std::move(children);
  return add(std::move(rule));
}

Result<RuleId> AutomatonBuilder::add_choice(std::vector<RuleId> children) {
  Rule rule{.kind = RuleKind::kChoice};
  rule.children = std::move(children);
  return add(std::move(rule));
}

Result<RuleId> AutomatonBuilder::add_literal(std::string_view text) {
  ROOST_TRY(ByteDfa dfa, literal_dfa({std::string(text)}, budget_));
  return add_bytes(std::move(dfa));
}

Result<RuleId> AutomatonBuilder::add_object(ObjectRule object,
                                            const std::vector<std::string>& keys) {
  const size_t n = object.properties.size();
  object.next_required.assign(n + 1, static_cast<uint32_t>(n));
  object.n_required.assign(n + 1, 0);
  for (size_t i = n; i-- > 0;) {
    const bool is_required = object.properties[i].is_required;
    object.next_required[i] = is_required ? static_cast<uint32_t>(i) : object.next_required[i + 1];
    object.n_required[i] = object.n_required[i + 1] + is_required;
    if (object.is_unordered && is_required) object.required_bits |= uint64_t{1} << i;
  }
  object.keys.emplace_back();
  for (size_t i = 0; i < n; ++i) {
    uint32_t at = 0;
    object.keys[0].properties.push_back(static_cast<uint32_t>(i));
    for (const char c : keys[i]) {
      const auto byte = static_cast<uint8_t>(c);
      auto& next = object.keys[at].next;
      auto way = std::lower_bound(next.begin(), next.end(), std::pair(byte, uint32_t{0}));
      if (way == next.end() || way->first != byte) {
        ROOST_TRY_DO(budget_.take_states(1));
        way = next.insert(way, {byte, static_cast<uint32_t>(object.keys.size())});
        at = way->second;
        object.keys.emplace_back();
      } else {
        at = way->second;
      }
      object.keys[at].properties.push_back(static_cast<uint32_t>(i));
    }
    object.keys[at].property = static_cast<uint32_t>(i);
  }
  Rule rule{.kind = RuleKind::kObject};
  rule.object = std::make_shared<ObjectRule>(std::move(object));
  return add(std::move(rule));
}

Result<void> AutomatonBuilder::add_punctuation(bool has_space) {
  // At most a newline, then at most 20 spaces: what printers write, and nothing endless.
  const std::string space = has_space ? "\\n? {0,20}" : "";
  const auto add_pattern = [&](const std::string& pattern) -> Result<RuleId> {
    ROOST_TRY(ByteDfa dfa, compile_regex(pattern, {}, budget_));
    return add_bytes(std::move(dfa));
  };
  Punctuation& p = punctuation_;
  ROOST_TRY(p.open_object, add_pattern("\\{" + space));
  ROOST_TRY(p.close_object, add_pattern(space + "\\}"));
  ROOST_TRY(p.close_empty_object, add_pattern("\\}"));
  ROOST_TRY(p.open_array, add_pattern("\\[" + space));
  ROOST_TRY(p.close_array, add_pattern(space + "\\]"));
  ROOST_TRY(p.close_empty_array, add_pattern("\\]"));
  ROOST_TRY(p.comma, add_pattern(space + "," + space));
  ROOST_TRY(p.colon, add_pattern(space + ":" + space));
  return {};
}

namespace {

uint32_t one_more(uint32_t height) {
  return height == kEndless ? kEndless : height + 1;
}

}  // namespace

uint32_t AutomatonBuilder::height_of_object(const ObjectRule& object) const {
  const auto height = [&](RuleId id) { return automaton_.rules[id].height; };
  uint32_t most = 0;
  std::vector<uint32_t> optional;
  for (const ObjectRule::Property& property : object.properties) {
    if (property.is_required)
      most = std::max(most, height(property.value));
    else if (height(property.value) != kEndless)
      optional.push_back(height(property.value));
  }
  const uint32_t n_needed = object.n_required[0];
  if (n_needed > object.max || object.min > object.max) return kEndless;
  if (object.min <= n_needed) return one_more(most);
  // The lowest of the optional ones fill up; other keys never run out.
  size_t n_missing = object.min - n_needed;
  if (object.are_others_unique) {
    uint32_t other = kEndless;
    for (const RuleId id : object.other_values)
      if (id != kNoRule) other = std::min(other, height(id));
    if (other != kEndless) optional.insert(optional.end(), n_missing, other);
  }
  if (optional.size() < n_missing) return kEndless;
  std::sort(optional.begin(), optional.end());
  return one_more(std::max(most, optional[n_missing - 1]));
}

uint32_t AutomatonBuilder::height_of_array(const ArrayRule& array) const {
  if (array.min > array.max) return kEndless;
  if (!array.distinct_items.empty()) return array.distinct_items.size() < array.min ? kEndless : 1;
  uint32_t most = 0;
  const uint32_t n_first = std::min(array.min, static_cast<uint32_t>(array.first_items.size()));
  for (uint32_t i = 0; i < n_first; ++i)
    most = std::max(most, automaton_.rules[array.first_items[i]].height);
  if (array.min > array.first_items.size())
    most = std::max(most, array.items == kNoRule ? kEndless : automaton_.rules[array.items].height);
  return one_more(most);
}

uint32_t AutomatonBuilder::height_of(const Rule& rule) const {
  const auto height = [&](RuleId id) { return automaton_.rules[id].height; };
  uint32_t result = 0;
  switch (rule.kind) {
    case RuleKind::kBytes:
      return rule.dfa->accepts_nothing() || rule.length_min > rule.length_max ? kEndless : 0;
    case RuleKind::kSequence:
      for (const RuleId child : rule.children) result = std::max(result, height(child));
      return result;
    case RuleKind::kChoice:
      result = kEndless;
      for (const RuleId child : rule.children) result = std::min(result, height(child));
      return result;
    case RuleKind::kRepeat:
      return rule.min == 0 ? 0 : height(rule.children[0]);
    case RuleKind::kCall:
      return one_more(height(rule.children[0]));
    case RuleKind::kObject:
      return height_of_object(*rule.object);
    case RuleKind::kArray:
      return height_of_array(*rule.array);
  }
  return result;
}

void AutomatonBuilder::compute_heights() {
  // Heights only fall; each round finds at least all rules of one more level.
  for (bool has_changed = true; has_changed;) {
    has_changed = false;
    for (size_t i = automaton_.rules.size(); i-- > 0;) {
      const uint32_t height = height_of(automaton_.rules[i]);
      if (height >= automaton_.rules[i].height) continue;
      automaton_.rules[i].height = height;
      has_changed = true;
    }
    // A chain of rules against the order is found one a round: bounded like all else.
    if (!budget_.take_steps(static_cast<int64_t>(automaton_.rules.size()))) return;
  }
}

Result<Automaton> AutomatonBuilder::finish(RuleId root, uint32_t levels_max,
                                           Refusal refusal_if_empty) {
  compute_heights();
  ROOST_TRY_DO(budget_.take_steps(0));
  if (automaton_.rules[root].height == kEndless)
    return Error{refusal_if_empty, "nothing satisfies the whole"};
  if (automaton_.rules[root].height > levels_max)
    return Error{budget_.refusal, "the least value has " +
                                      std::to_string(automaton_.rules[root].height) +
                                      " levels, at most " + std::to_string(levels_max)};
  for (Rule& rule : automaton_.rules) {
    if (!rule.object || !rule.object->other_keys) continue;
    // A key whose value nothing satisfies must not be begun.
    ByteDfa keys = *rule.object->other_keys;
    bool has_changed = false;
    for (int32_t& tag : keys.tags) {
      if (tag == ByteDfa::kDead) continue;
      const RuleId value = rule.object->other_values[static_cast<size_t>(tag)];
      if (value != kNoRule && automaton_.rules[value].height != kEndless) continue;
      tag = ByteDfa::kDead;
      has_changed = true;
    }
    if (!has_changed) continue;
    keys = trim(keys);
    rule.object->other_keys =
        keys.accepts_nothing() ? nullptr : std::make_shared<const ByteDfa>(std::move(keys));
  }
  automaton_.levels_max = levels_max;
  automaton_.set_root(root);
  return std::move(automaton_);
}

}  // namespace roost
