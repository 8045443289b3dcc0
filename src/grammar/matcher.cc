// Threads over stacks: each byte moves every thread, and what is finished resumes its parent.
#include "grammar/matcher.h"

#include <algorithm>

#include "base/check.h"

namespace roost {

namespace {

constexpr size_t kMaskBytesMax = size_t{64} << 20;  // of one grammar; further states are walked
constexpr size_t kPreparedStates = 4, kPreparedMasks = 8;  // of an automaton, of a grammar
constexpr uint64_t kHashStart = 0xCBF29CE484222325u;
constexpr size_t kThreadsUsual = 32, kTasksUsual = 256;  // room that is taken at the start
constexpr size_t kTasksMax = 100'000;  // of one byte: beyond, readings are dropped

uint64_t hashed(uint64_t hash, uint64_t word) {
  hash = (hash ^ word) * 0x9E3779B97F4A7C15u;
  return hash ^ (hash >> 32);
}

uint64_t hash_of(const GrammarFrame& f) {
  uint64_t hash = hashed(
      kHashStart, static_cast<uint64_t>(f.phase) | uint64_t{f.level} << 8 | uint64_t{f.rule} << 32);
  hash = hashed(hash, static_cast<uint32_t>(f.state) | uint64_t{f.counter} << 32);
  return hashed(hashed(hash, f.parent | uint64_t{f.keys} << 32), f.hash);
}

}  // namespace

Grammar::Grammar(Automaton automaton, std::shared_ptr<const TokenVocabulary> vocabulary)
    : automaton_(std::move(automaton)),
      vocabulary_(std::move(vocabulary)),
      follow_(follow_bytes(automaton_)),
      n_bytes_(automaton_.n_bytes()) {}

std::shared_ptr<const StateMask> Grammar::state_mask(const MaskKey& key) const {
  if (key.dfa->is_lasting && key.part == whole_of(vocabulary_->tree()))
    return vocabulary_->lasting_mask(key);
  const std::lock_guard lock(mutex_);
  const auto found = masks_.find(key);
  if (found != masks_.end()) return found->second;
  if (n_mask_bytes_ >= kMaskBytesMax) return nullptr;
  std::shared_ptr<const StateMask> mask = vocabulary_->compute_mask(key, follow_.at(key.dfa));
  n_mask_bytes_ += mask->n_bytes();
  return masks_[key] = std::move(mask);
}

void Grammar::prepare() const {
  const TreePart whole = whole_of(vocabulary_->tree());
  size_t n_left = kPreparedMasks;
  const auto prepare_states = [&](const DfaPtr& dfa, bool has_exits) {
    const size_t n_states = dfa ? std::min(dfa->tags.size(), kPreparedStates) : 0;
    for (size_t state = 0; state < n_states && n_left > 0; ++state) {
      const auto mask = state_mask({dfa.get(), static_cast<int32_t>(state), whole, has_exits});
      if (mask && !mask->is_small) --n_left;
    }
  };
  for (RuleId id = 0; id < automaton_.rules.size(); ++id) {
    const Rule& rule = automaton_.rules[id];
    prepare_states(rule.dfa, id != automaton_.root);
    if (rule.object) prepare_states(rule.object->other_keys, true);
  }
}

GrammarMatcher::GrammarMatcher(GrammarUse use)
    : use_(std::move(use)), automaton_(use_.grammar->automaton()), buckets_(1024, UINT32_MAX) {
  // Replies of usual forms take no further memory.
  walked_.resize(2 * use_.grammar->vocabulary().tree().depth_max() + 2);
  for (Place& place : walked_) place.threads.reserve(kThreadsUsual);
  for (Place* place : {&now_, &read_[0], &read_[1]}) place->threads.reserve(kThreadsUsual);
  before_.resize(limits::kGrammarRollbackMax);
  for (Before& before : before_) before.place.threads.reserve(kThreadsUsual);
  frames_.reserve(buckets_.size());
  next_in_bucket_.reserve(buckets_.size());
  keys_.reserve(kThreadsUsual);
  tasks_.reserve(kTasksUsual);
  done_.reserve(kTasksUsual);
  const uint32_t end = number_of({.phase = Phase::kEnd});
  const RuleId root = use_.is_behind_reasoning ? automaton_.root_behind_reasoning : automaton_.root;
  enter(root, end, 0);
  run_tasks(now_);
}

uint32_t GrammarMatcher::number_of(const Frame& frame) {
  if (frames_.size() == buckets_.size()) {  // keeps the chains short
    buckets_.assign(buckets_.size() * 2, UINT32_MAX);
    for (size_t i = 0; i < frames_.size(); ++i) {
      uint32_t& bucket = buckets_[hash_of(frames_[i]) & (buckets_.size() - 1)];
      next_in_bucket_[i] = bucket;
      bucket = static_cast<uint32_t>(i);
    }
  }
  uint32_t& bucket = buckets_[hash_of(frame) & (buckets_.size() - 1)];
  for (uint32_t i = bucket; i != UINT32_MAX; i = next_in_bucket_[i])
    if (frames_[i] == frame) return i;
  frames_.push_back(frame);
  next_in_bucket_.push_back(bucket);
  bucket = static_cast<uint32_t>(frames_.size() - 1);
  return bucket;
}

// Frames leave in the opposite order of their coming, so each is the first of its chain.
void GrammarMatcher::release(Mark mark) {
  while (frames_.size() > mark.n_frames) {
    buckets_[hash_of(frames_.back()) & (buckets_.size() - 1)] = next_in_bucket_.back();
    frames_.pop_back();
    next_in_bucket_.pop_back();
  }
  keys_.resize(mark.n_keys);
}

// ---- One byte -----------------------------------------------------------------------------------

void GrammarMatcher::add_thread(const Frame& thread, Place& to) {
  if (to.threads.size() >= limits::kGrammarThreadsMax) return;
  if (std::find(to.threads.begin(), to.threads.end(), thread) == to.threads.end())
    to.threads.push_back(thread);
}

void GrammarMatcher::step(const Place& from, uint8_t byte, Place& to) {
  to.threads.clear();
  to.may_end = false;
  for (const Frame& thread : from.threads) {
    if (thread.phase == Phase::kKey)
      step_key(thread, byte, to);
    else
      step_bytes(thread, byte, to);
  }
  if (!tasks_.empty()) run_tasks(to);
}

void GrammarMatcher::step_bytes(const Frame& thread, uint8_t byte, Place& to) {
  const Rule& rule = automaton_.rules[thread.rule];
  const ByteDfa& dfa = *rule.dfa;
  Frame next = thread;
  next.state = dfa.step(thread.state, byte);
  if (next.state == ByteDfa::kDead) return;
  if (rule.length_min > 0 || rule.length_max != kUnbounded) {
    // Between code points the closing quote may come; any other byte begins a code point.
    const int32_t at_quote = dfa.step(thread.state, '"');
    const bool is_between = at_quote != ByteDfa::kDead && dfa.accepts(at_quote);
    if (is_between && byte == '"' && thread.counter < rule.length_min) return;
    if (is_between && byte != '"' && ++next.counter > rule.length_max) return;
  }
  if (dfa.accepts(next.state)) resume(thread.parent);
  if (dfa.has_way_on(next.state)) add_thread(next, to);
}

void GrammarMatcher::step_key(const Frame& thread, uint8_t byte, Place& to) {
  const ObjectRule& object = *automaton_.rules[thread.rule].object;
  const Frame members = frames_[thread.parent];
  Frame next = thread;
  next.hash = hashed(thread.hash, byte);
  if (thread.state != ByteDfa::kDead) next.state = object.other_keys->step(thread.state, byte);
  // The place in the tree is kept also where no property there may come: its keys are no others'.
  next.counter = kUnbounded;
  bool has_own = false;
  if (thread.counter != kUnbounded) {
    const KeyNode& node = object.keys[thread.counter];
    const auto way = std::lower_bound(
        node.next.begin(), node.next.end(), byte,
        [](const std::pair<uint8_t, uint32_t>& edge, uint8_t b) { return edge.first < b; });
    if (way != node.next.end() && way->first == byte) {
      next.counter = way->second;
      has_own = has_usable(members, object.keys[way->second]);
      const uint32_t property = object.keys[way->second].property;
      if (property != kUnbounded) {
        if (has_own)
          end_key(members, property + 1, object.properties[property].value, members.keys);
        return;
      }
    }
  }
  if (next.state != ByteDfa::kDead && object.other_keys->accepts(next.state)) {
    const auto tag = static_cast<size_t>(object.other_keys->tags[static_cast<size_t>(next.state)]);
    uint32_t keys = members.keys;
    if (object.are_others_unique) {
      if (has_key(keys, next.hash)) return;
      keys_.push_back({next.hash, keys});
      keys = static_cast<uint32_t>(keys_.size() - 1);
    }
    const auto behind_all = static_cast<uint32_t>(object.properties.size());
    end_key(members, object.is_unordered ? behind_all + 1 : behind_all, object.other_values[tag],
            keys);
    return;
  }
  if (next.state != ByteDfa::kDead || has_own) add_thread(next, to);
}

bool GrammarMatcher::has_key(uint32_t keys, uint64_t hash) const {
  for (; keys != 0; keys = keys_[keys].next)
    if (keys_[keys].hash == hash) return true;
  return false;
}

// The key is read: its colon, its value, and then the object goes on.
void GrammarMatcher::end_key(const Frame& members, uint32_t next_property, RuleId value,
                             uint32_t keys) {
  Frame behind = members;
  const ObjectRule& object = *automaton_.rules[members.rule].object;
  if (!object.is_unordered)
    behind.state = static_cast<int32_t>(next_property);
  else if (next_property <= object.properties.size())
    behind.hash |= uint64_t{1} << (next_property - 1);
  behind.keys = keys;
  // Without an upper bound the count matters only until the lower one is reached.
  behind.counter = object.max == kUnbounded
                       ? std::min(members.counter + 1, std::max(object.min, 1u))
                       : members.counter + 1;
  const uint32_t parent = number_of(behind);
  const uint32_t then = number_of({.phase = Phase::kThen,
                                   .level = members.level,
                                   .state = static_cast<int32_t>(value),
                                   .parent = parent});
  enter(object.punctuation.colon, then, members.level);
}

// ---- Rules that begin and resume ----------------------------------------------------------------

void GrammarMatcher::enter(RuleId rule, uint32_t parent, uint16_t level) {
  tasks_.push_back({true, rule, parent, level});
}

void GrammarMatcher::resume(uint32_t frame) {
  tasks_.push_back({false, kNoRule, frame, 0});
}

void GrammarMatcher::run_tasks(Place& to) {
  done_.clear();
  while (!tasks_.empty()) {
    const Task task = tasks_.back();
    tasks_.pop_back();
    // Rules that can be empty may come back to where they were.
    if (std::find(done_.begin(), done_.end(), task) != done_.end()) continue;
    if (done_.size() >= kTasksMax) continue;
    done_.push_back(task);
    if (task.is_enter)
      run_enter(task, to);
    else
      run_resume(task.parent, to);
  }
}

bool GrammarMatcher::fits(RuleId rule, uint16_t level) const {
  const uint32_t height = automaton_.rules[rule].height;
  return height != kEndless && level + height <= automaton_.levels_max;
}

void GrammarMatcher::run_enter(const Task& task, Place& to) {
  const Rule& rule = automaton_.rules[task.rule];
  const uint16_t level = task.level;
  switch (rule.kind) {
    case RuleKind::kBytes:
      if (rule.dfa->accepts(0)) resume(task.parent);
      if (rule.dfa->has_way_on(0))
        add_thread(
            {.phase = Phase::kBytes, .level = level, .rule = task.rule, .parent = task.parent}, to);
      return;
    case RuleKind::kSequence:
      return resume_sequence(
          {.phase = Phase::kSequence, .level = level, .rule = task.rule, .parent = task.parent});
    case RuleKind::kChoice:
      for (size_t i = rule.children.size(); i-- > 0;)
        if (fits(rule.children[i], level)) enter(rule.children[i], task.parent, level);
      return;
    case RuleKind::kRepeat:
      return resume_repeat(
          {.phase = Phase::kRepeat, .level = level, .rule = task.rule, .parent = task.parent});
    case RuleKind::kCall:
      return enter(rule.children[0], task.parent, static_cast<uint16_t>(level + 1));
    case RuleKind::kObject:
    case RuleKind::kArray: {
      const bool is_object = rule.kind == RuleKind::kObject;
      const uint32_t inside = number_of({.phase = is_object ? Phase::kMembers : Phase::kItems,
                                         .level = static_cast<uint16_t>(level + 1),
                                         .rule = task.rule,
                                         .parent = task.parent});
      return enter(
          is_object ? rule.object->punctuation.open_object : rule.array->punctuation.open_array,
          inside, level);
    }
  }
}

void GrammarMatcher::run_resume(uint32_t number, Place& to) {
  const Frame frame = frames_[number];
  switch (frame.phase) {
    case Phase::kSequence:
      return resume_sequence(frame);
    case Phase::kRepeat:
      return resume_repeat(frame);
    case Phase::kMembers:
      return resume_members(frame, number, to);
    case Phase::kNextKey:
      return start_key(frame.parent, to);
    case Phase::kItems:
      return resume_items(frame);
    case Phase::kThen:
      return enter(static_cast<RuleId>(frame.state), frame.parent, frame.level);
    case Phase::kEnd:
      to.may_end = true;
      return;
    case Phase::kBytes:
    case Phase::kKey:
      ROOST_CHECK(false);  // nothing stands on them
  }
}

// The last child stands on the parent itself: rules that end in themselves need no stack.
void GrammarMatcher::resume_sequence(const Frame& frame) {
  const std::vector<RuleId>& children = automaton_.rules[frame.rule].children;
  const auto next = static_cast<size_t>(frame.state);
  if (next == children.size()) return resume(frame.parent);
  if (next + 1 == children.size())
    return enter(children[next], frame.parent, frames_[frame.parent].level);
  Frame behind = frame;
  ++behind.state;
  enter(children[next], number_of(behind), frame.level);
}

void GrammarMatcher::resume_repeat(const Frame& frame) {
  const Rule& rule = automaton_.rules[frame.rule];
  if (frame.counter >= rule.min) resume(frame.parent);
  if (frame.counter >= rule.max || !fits(rule.children[0], frame.level)) return;
  Frame behind = frame;
  behind.counter =
      rule.max == kUnbounded ? std::min(frame.counter + 1, rule.min) : frame.counter + 1;
  enter(rule.children[0], number_of(behind), frame.level);
}

void GrammarMatcher::resume_members(const Frame& frame, uint32_t number, Place& to) {
  const ObjectRule& object = *automaton_.rules[frame.rule].object;
  const Punctuation& p = object.punctuation;
  const bool is_first = frame.counter == 0;
  const auto outer = static_cast<uint16_t>(frame.level - 1);
  const bool has_all = object.is_unordered
                           ? (object.required_bits & ~frame.hash) == 0
                           : object.n_required[static_cast<size_t>(frame.state)] == 0;
  if (has_all && frame.counter >= object.min)
    enter(is_first ? p.close_empty_object : p.close_object, frame.parent, outer);
  if (is_first) return start_key(number, to);
  if (!has_usable(frame, object.keys[0]) && !are_others_usable(frame)) return;
  enter(p.comma, number_of({.phase = Phase::kNextKey, .level = frame.level, .parent = number}),
        frame.level);
}

void GrammarMatcher::start_key(uint32_t number, Place& to) {
  const Frame members = frames_[number];
  const ObjectRule& object = *automaton_.rules[members.rule].object;
  const bool has_own = has_usable(members, object.keys[0]);
  const bool has_others = are_others_usable(members);
  if (!has_own && !has_others) return;
  add_thread({.phase = Phase::kKey,
              .level = members.level,
              .rule = members.rule,
              .state = has_others ? 0 : ByteDfa::kDead,
              .parent = number,
              .hash = kHashStart},
             to);
}

// Whether the least number of members can still be reached.
bool GrammarMatcher::can_fill(const Frame& members, uint32_t next_property,
                              uint32_t n_members) const {
  const ObjectRule& object = *automaton_.rules[members.rule].object;
  if (n_members >= object.min) return true;
  if (object.other_keys && object.are_others_unique) {
    for (const RuleId value : object.other_values)
      if (value != kNoRule && fits(value, members.level)) return true;
  }
  for (size_t i = next_property; i < object.properties.size() && n_members < object.min; ++i)
    n_members += fits(object.properties[i].value, members.level);
  return n_members >= object.min;
}

bool GrammarMatcher::is_usable(const Frame& members, uint32_t property) const {
  const ObjectRule& object = *automaton_.rules[members.rule].object;
  if (object.is_unordered)
    return ((members.hash >> property) & 1) == 0 &&
           fits(object.properties[property].value, members.level);
  const auto next = static_cast<uint32_t>(members.state);
  if (property < next || property > object.next_required[next]) return false;
  if (!fits(object.properties[property].value, members.level)) return false;
  const uint32_t n_behind = members.counter + 1 + object.n_required[property + 1];
  return n_behind <= object.max && can_fill(members, property + 1, members.counter + 1);
}

bool GrammarMatcher::are_others_usable(const Frame& members) const {
  const ObjectRule& object = *automaton_.rules[members.rule].object;
  if (!object.other_keys) return false;
  if (!object.is_unordered && object.n_required[static_cast<size_t>(members.state)] > 0)
    return false;
  if (members.counter + 1 > object.max && object.max != kUnbounded) return false;
  for (const RuleId value : object.other_values) {
    if (value == kNoRule || automaton_.rules[value].height == kEndless) continue;
    if (!fits(value, members.level)) return false;  // its key would lead nowhere
  }
  return can_fill(members, static_cast<uint32_t>(object.properties.size()), members.counter + 1);
}

bool GrammarMatcher::has_usable(const Frame& members, const KeyNode& node) const {
  const auto first = std::lower_bound(node.properties.begin(), node.properties.end(),
                                      static_cast<uint32_t>(members.state));
  return std::any_of(first, node.properties.end(),
                     [&](uint32_t property) { return is_usable(members, property); });
}

void GrammarMatcher::resume_items(const Frame& frame) {
  const ArrayRule& array = *automaton_.rules[frame.rule].array;
  const Punctuation& p = array.punctuation;
  const bool is_first = frame.counter == 0;
  if (frame.counter >= array.min)
    enter(is_first ? p.close_empty_array : p.close_array, frame.parent,
          static_cast<uint16_t>(frame.level - 1));
  if (frame.counter >= array.max) return;
  const auto go_on = [&](RuleId item, uint64_t used) {
    if (item == kNoRule || !fits(item, frame.level)) return;
    Frame behind = frame;
    const auto n_first = static_cast<uint32_t>(array.first_items.size());
    behind.counter = array.max == kUnbounded
                         ? std::min(frame.counter + 1, std::max({array.min, n_first, 1u}))
                         : frame.counter + 1;
    behind.hash = used;
    const uint32_t parent = number_of(behind);
    if (is_first) return enter(item, parent, frame.level);
    enter(p.comma,
          number_of({.phase = Phase::kThen,
                     .level = frame.level,
                     .state = static_cast<int32_t>(item),
                     .parent = parent}),
          frame.level);
  };
  if (array.distinct_items.empty()) return go_on(array.item(frame.counter), 0);
  for (size_t i = 0; i < array.distinct_items.size(); ++i) {
    const uint64_t bit = uint64_t{1} << i;
    if ((frame.hash & bit) == 0) go_on(array.distinct_items[i], frame.hash | bit);
  }
}

// ---- Tokens -------------------------------------------------------------------------------------

bool GrammarMatcher::accept(int32_t token) {
  const TokenVocabulary& vocabulary = use_.grammar->vocabulary();
  if (token < 0 || token >= vocabulary.n_tokens() || vocabulary.bytes_of(token).empty())
    return false;
  const Mark begin = place_mark();
  read_[0] = now_;
  for (const char c : vocabulary.bytes_of(token)) {
    step(read_[0], static_cast<uint8_t>(c), read_[1]);
    std::swap(read_[0], read_[1]);
    if (read_[0].threads.empty() && !read_[0].may_end) {
      release(begin);
      return false;
    }
  }
  n_before_ = std::min(n_before_ + 1, before_.size());
  first_free_ = (first_free_ + 1) % before_.size();
  Before& before = last_before();
  before.mark = begin;
  std::swap(before.place, now_);
  std::swap(now_, read_[0]);
  return true;
}

void GrammarMatcher::rollback(size_t n_tokens) {
  ROOST_CHECK(n_tokens <= n_before_);
  for (; n_tokens > 0; --n_tokens) {
    std::swap(now_, last_before().place);
    release(last_before().mark);
    --n_before_;
    first_free_ = (first_free_ + before_.size() - 1) % before_.size();
  }
}

void GrammarMatcher::fill_mask(std::span<uint32_t> mask) {
  ROOST_CHECK(mask.size() >= mask_words(use_.grammar->vocabulary().n_tokens()));
  std::fill(mask.begin(), mask.end(), 0);
  for (const Frame& thread : now_.threads) fill_of_thread(thread, mask);
}

void GrammarMatcher::fill_of_thread(const Frame& thread, std::span<uint32_t> mask) {
  const Grammar& grammar = *use_.grammar;
  const bool is_key = thread.phase == Phase::kKey;
  const Rule& rule = automaton_.rules[thread.rule];
  const ByteDfa* dfa = is_key ? rule.object->other_keys.get() : rule.dfa.get();
  const TreePart whole = whole_of(grammar.vocabulary().tree());
  std::shared_ptr<const StateMask> state;
  if (thread.state != ByteDfa::kDead)
    state = grammar.state_mask({dfa, thread.state, whole, has_next(thread)});
  if (!state || state->is_small) return walk(whole, thread, 0, mask);
  allow_inside(thread, *state, mask);
  walk_exits(*state, thread, 0, mask);
  if (!is_key || thread.counter == kUnbounded) return;
  Frame own = thread;  // declared keys may go where others cannot
  own.state = ByteDfa::kDead;
  walk(whole, own, 0, mask);
}

void GrammarMatcher::allow_inside(const Frame& thread, const StateMask& state,
                                  std::span<uint32_t> mask) {
  const TokenVocabulary& vocabulary = use_.grammar->vocabulary();
  const Rule& rule = automaton_.rules[thread.rule];
  const bool has_max = thread.phase == Phase::kBytes && rule.length_max != kUnbounded;
  const uint32_t n_left = has_max ? rule.length_max - thread.counter : kUnbounded;
  // Whether a quote may close a key or a string depends on more than the automaton.
  const bool is_closed_freely = thread.phase == Phase::kBytes && thread.counter >= rule.length_min;
  if (is_closed_freely && n_left >= vocabulary.n_code_points_max()) {
    for (size_t i = 0; i < state.inside.size(); ++i) mask[i] |= state.inside[i];
    return;
  }
  // Tokens of plain characters by their number, the few others by their bytes.
  if (const TokenMask* plain = vocabulary.plain_up_to(n_left))
    for (size_t i = 0; i < plain->size(); ++i) mask[i] |= state.inside[i] & (*plain)[i];
  walk(whole_of(*state.marked), thread, 0, mask);
}

// Threads of which what stands in a part depends on nothing but their automata, until they leave
// them.
bool GrammarMatcher::can_be_split(const Place& place) const {
  return std::all_of(place.threads.begin(), place.threads.end(), [&](const Frame& thread) {
    const Rule& rule = automaton_.rules[thread.rule];
    return thread.phase == Phase::kBytes && rule.length_min == 0 && rule.length_max == kUnbounded;
  });
}

void GrammarMatcher::fill_part(const TreePart& part, const Frame& thread, size_t n_walked,
                               std::span<uint32_t> mask) {
  const std::shared_ptr<const StateMask> state = use_.grammar->state_mask(
      {automaton_.rules[thread.rule].dfa.get(), thread.state, part, has_next(thread)});
  if (!state || state->is_small) return walk(part, thread, n_walked, mask);
  for (size_t i = 0; i < state->inside.size(); ++i) mask[i] |= state->inside[i];
  walk_exits(*state, thread, n_walked, mask);
}

void GrammarMatcher::walk_exits(const StateMask& state, const Frame& thread, size_t n_walked,
                                std::span<uint32_t> mask) {
  if (state.exits) walk(whole_of(*state.exits), thread, n_walked, mask);
}

void GrammarMatcher::walk(const TreePart& part, const Frame& thread, size_t n_walked,
                          std::span<uint32_t> mask) {
  const Mark begin = place_mark();
  const size_t n_large = use_.grammar->vocabulary().walk_nodes_max();
  walked_[n_walked].threads.assign(1, thread);
  const std::vector<TokenTree::Node>& nodes = part.tree->nodes();
  for (uint32_t i = part.begin; i < part.end;) {
    const TokenTree::Node& node = nodes[i];
    const size_t to_idx = n_walked + node.depth - part.depth + 1;
    Place& to = walked_[to_idx];
    step(walked_[to_idx - 1], node.byte, to);
    if (to.threads.empty() && !to.may_end) {
      i = node.end;
      continue;
    }
    for (int32_t id = node.first_token; id >= 0; id = part.tree->next_token(id))
      allow_token(mask, id);
    ++i;
    if (node.end - i <= n_large || !can_be_split(to)) continue;
    for (const Frame& one : to.threads)
      fill_part({part.tree, i, node.end, static_cast<uint16_t>(node.depth + 1)}, one, to_idx + 1,
                mask);
    i = node.end;
  }
  release(begin);
}

}  // namespace roost
