// A grammar followed along one reply: which tokens may come next, and what came.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "grammar/automaton.h"
#include "grammar/token_mask.h"

namespace roost {

// A grammar ready to be followed over a vocabulary. Shared by replies; any thread.
class Grammar {
 public:
  Grammar(Automaton automaton, std::shared_ptr<const TokenVocabulary> vocabulary);

  const Automaton& automaton() const { return automaton_; }
  const TokenVocabulary& vocabulary() const { return *vocabulary_; }
  size_t n_bytes() const { return n_bytes_; }
  // Null when so many are kept that this one is not.
  std::shared_ptr<const StateMask> state_mask(const MaskKey& key) const;
  // Computes what replies are likely to ask first, so that the thread that follows them need not.
  void prepare() const;

 private:
  const Automaton automaton_;
  const std::shared_ptr<const TokenVocabulary> vocabulary_;
  const std::map<const ByteDfa*, ByteSet> follow_;
  const size_t n_bytes_;
  mutable std::mutex mutex_;
  mutable MaskMap masks_;
  mutable size_t n_mask_bytes_ = 0;
};

// What a request asks of its reply's form.
struct GrammarUse {
  std::shared_ptr<const Grammar> grammar;
  bool is_behind_reasoning = false;  // free text comes first, up to </think>

  explicit operator bool() const { return grammar != nullptr; }
};

// The place of one thread (one reading of what came): the innermost of a stack of frames.
struct GrammarFrame {
  enum class Phase : uint8_t {
    kBytes,     // in an automaton; state, counter: code points of the string
    kKey,       // in the key of an object's member; state: of other_keys, counter: of the key tree
    kSequence,  // behind child number `state`
    kRepeat,    // `counter` times done
    kMembers,   // behind a member or the open bracket; state: next property, counter: members
    kNextKey,   // behind a comma: the key of the kMembers frame above
    kItems,     // behind an item or the open bracket; counter: items, hash: distinct ones used
    kThen,      // then rule `state`
    kEnd,       // the whole is done
  };
  Phase phase = Phase::kEnd;
  uint16_t level = 0;  // objects, arrays and calls around it
  RuleId rule = kNoRule;
  int32_t state = 0;
  uint32_t counter = 0;
  uint32_t parent = 0;
  uint32_t keys = 0;  // list of other keys of the object so far
  uint64_t hash = 0;

  friend bool operator==(const GrammarFrame&, const GrammarFrame&) = default;
};

// One reply's state. Not shared between threads.
class GrammarMatcher {
 public:
  explicit GrammarMatcher(GrammarUse use);

  // Sets the bits of the tokens that may come next; all others are cleared. mask has
  // mask_words(n) words for an n of at least the vocabulary's tokens.
  void fill_mask(std::span<uint32_t> mask);
  // False, and nothing changes, when the token may not come next.
  bool accept(int32_t token);
  // Takes the last n accepted tokens back, at most limits::kGrammarRollbackMax.
  void rollback(size_t n_tokens);
  bool may_end() const { return now_.may_end; }           // what came is a whole
  bool must_end() const { return now_.threads.empty(); }  // no token may follow

 private:
  using Frame = GrammarFrame;
  using Phase = GrammarFrame::Phase;

  struct Place {
    std::vector<Frame> threads;  // innermost frames; kBytes and kKey only
    bool may_end = false;
  };
  struct Task {
    bool is_enter = false;
    RuleId rule = kNoRule;
    uint32_t parent = 0;
    uint16_t level = 0;

    friend bool operator==(const Task&, const Task&) = default;
  };
  struct KeyLink {
    uint64_t hash;
    uint32_t next;
  };
  struct Mark {
    size_t n_frames, n_keys;
  };

  // Frames that others stand on are numbered; equal ones have one number.
  uint32_t number_of(const Frame& frame);
  Mark place_mark() const { return {frames_.size(), keys_.size()}; }
  void release(Mark mark);

  void step(const Place& from, uint8_t byte, Place& to);
  void step_bytes(const Frame& thread, uint8_t byte, Place& to);
  void step_key(const Frame& thread, uint8_t byte, Place& to);
  void add_thread(const Frame& thread, Place& to);

  void enter(RuleId rule, uint32_t parent, uint16_t level);
  void resume(uint32_t frame);
  void run_tasks(Place& to);
  void run_enter(const Task& task, Place& to);
  void run_resume(uint32_t number, Place& to);
  void resume_sequence(const Frame& frame);
  void resume_repeat(const Frame& frame);
  void resume_members(const Frame& frame, uint32_t number, Place& to);
  void resume_items(const Frame& frame);
  void start_key(uint32_t members, Place& to);
  void end_key(const Frame& members, uint32_t next_property, RuleId value, uint32_t keys);
  bool is_usable(const Frame& members, uint32_t property) const;
  bool are_others_usable(const Frame& members) const;
  bool has_usable(const Frame& members, const KeyNode& node) const;
  bool can_fill(const Frame& members, uint32_t next_property, uint32_t n_members) const;
  bool fits(RuleId rule, uint16_t level) const;
  bool has_key(uint32_t keys, uint64_t hash) const;

  void fill_of_thread(const Frame& thread, std::span<uint32_t> mask);
  void allow_inside(const Frame& thread, const StateMask& state, std::span<uint32_t> mask);
  // Tokens whose bytes stand in the part and may come next on this thread. n_walked: places of
  // walked_ that are in use.
  void walk(const TreePart& part, const Frame& thread, size_t n_walked, std::span<uint32_t> mask);
  void walk_exits(const StateMask& state, const Frame& thread, size_t n_walked,
                  std::span<uint32_t> mask);
  // What follows the thread's automaton is not the end.
  bool has_next(const Frame& thread) const { return frames_[thread.parent].phase != Phase::kEnd; }
  bool can_be_split(const Place& place) const;
  void fill_part(const TreePart& part, const Frame& thread, size_t n_walked,
                 std::span<uint32_t> mask);

  const GrammarUse use_;
  const Automaton& automaton_;
  std::vector<Frame> frames_;
  std::vector<uint32_t> next_in_bucket_, buckets_;
  std::vector<KeyLink> keys_{{0, 0}};  // number 0: the empty list
  Place now_, read_[2];
  // In front of the tokens that can be taken back: a ring.
  struct Before {
    Place place;
    Mark mark{0, 0};
  };
  Before& last_before() { return before_[(first_free_ + before_.size() - 1) % before_.size()]; }
  std::vector<Before> before_;
  size_t n_before_ = 0, first_free_ = 0;
  std::vector<Place> walked_;  // one a depth of a walk, and one more for each walk inside it
  std::vector<Task> tasks_, done_;
};

}  // namespace roost
