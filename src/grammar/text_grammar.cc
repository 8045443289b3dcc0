// Parts of a grammar that never come back to themselves become one automaton; the rest are rules.
#include "grammar/text_grammar.h"

#include <fmt/format.h>

#include <optional>

#include "grammar/ebnf_parser.h"
#include "grammar/regex.h"

namespace roost {

namespace {

// References of regular rules to each other may be as deep as there are rules: bounded here.
constexpr int kInlineDepthMax = 64;
constexpr size_t kInlineStatesMax = 20'000;  // of one automaton; beyond, rules stay rules

class EbnfCompiler {
 public:
  EbnfCompiler(const EbnfGrammar& grammar, AutomatonBuilder& builder)
      : grammar_(grammar), builder_(builder), rules_(grammar.rules.size(), kNoRule) {}

  Result<RuleId> compile() {
    ROOST_TRY(const RuleId root, rule_of(grammar_.root));
    while (!pending_.empty()) {
      const size_t next = pending_.back();
      pending_.pop_back();
      ROOST_TRY(const RuleId body, node(grammar_.rules[next].node));
      Rule& rule = builder_.rule(rules_[next]);
      rule.kind = RuleKind::kCall;
      rule.children = {body};
    }
    return root;
  }

 private:
  Result<RuleId> rule_of(size_t idx) {
    if (rules_[idx] != kNoRule) return rules_[idx];
    ROOST_TRY(rules_[idx], builder_.reserve());
    pending_.push_back(idx);
    return rules_[idx];
  }

  // Lays the node into an automaton; nothing when it is not regular or too large for one.
  std::optional<int32_t> lay(size_t idx, int depth, ByteNfa& nfa, int32_t from) {
    const EbnfNode& node = grammar_.nodes[idx];
    if (depth > kInlineDepthMax || nfa.n_states() > kInlineStatesMax) return std::nullopt;
    std::optional<int32_t> at = from;
    switch (node.kind) {
      case EbnfNode::Kind::kText:
        return nfa.add_text(from, node.text);
      case EbnfNode::Kind::kClass:
        at = nfa.add_state();
        add_code_points(nfa, node.set, TextForm::kRaw, from, *at);
        return at;
      case EbnfNode::Kind::kReference:
        if (!grammar_.rules[node.rule].is_regular) return std::nullopt;
        at = nfa.add_state();  // counts the reference, whatever it stands for
        nfa.add_empty(from, *at);
        return lay(grammar_.rules[node.rule].node, depth + 1, nfa, *at);
      case EbnfNode::Kind::kSequence:
        for (const size_t child : node.children)
          if (at) at = lay(child, depth, nfa, *at);
        return at;
      case EbnfNode::Kind::kChoice: {
        const int32_t to = nfa.add_state();
        for (const size_t child : node.children) {
          const int32_t begin = nfa.add_state();
          nfa.add_empty(from, begin);
          at = lay(child, depth, nfa, begin);
          if (!at) return std::nullopt;
          nfa.add_empty(*at, to);
        }
        return to;
      }
      case EbnfNode::Kind::kRepeat:
        return lay_repeat(node, depth, nfa, from);
    }
    return std::nullopt;
  }

  std::optional<int32_t> lay_repeat(const EbnfNode& node, int depth, ByteNfa& nfa, int32_t from) {
    std::optional<int32_t> at = from;
    const int32_t to = nfa.add_state();
    for (int i = 0; i < node.min && at; ++i) at = lay(node.children[0], depth, nfa, *at);
    if (!at) return std::nullopt;
    if (node.max < 0) {
      const int32_t loop = nfa.add_state();
      nfa.add_empty(*at, loop);
      const std::optional<int32_t> end = lay(node.children[0], depth, nfa, loop);
      if (!end) return std::nullopt;
      nfa.add_empty(*end, loop);
      nfa.add_empty(loop, to);
      return to;
    }
    for (int i = node.min; i < node.max && at; ++i) {
      nfa.add_empty(*at, to);
      at = lay(node.children[0], depth, nfa, *at);
    }
    if (!at) return std::nullopt;
    nfa.add_empty(*at, to);
    return to;
  }

  Result<RuleId> node(size_t idx) {
    ByteNfa nfa;
    if (const std::optional<int32_t> end = lay(idx, 0, nfa, 0)) {
      nfa.accept(*end, 0);
      ROOST_TRY(ByteDfa dfa, nfa.determinize(builder_.budget()));
      return builder_.add_bytes(std::move(dfa));
    }
    const EbnfNode& node = grammar_.nodes[idx];
    ROOST_TRY_DO(builder_.budget().take_steps(static_cast<int64_t>(nfa.n_states())));
    if (node.kind == EbnfNode::Kind::kReference) return rule_of(node.rule);
    Rule rule;
    for (const size_t child : node.children) {
      ROOST_TRY(const RuleId id, this->node(child));
      rule.children.push_back(id);
    }
    if (node.kind == EbnfNode::Kind::kRepeat) {
      rule.kind = RuleKind::kRepeat;
      rule.min = static_cast<uint32_t>(node.min);
      rule.max = node.max < 0 ? kUnbounded : static_cast<uint32_t>(node.max);
    } else {
      rule.kind = node.kind == EbnfNode::Kind::kChoice ? RuleKind::kChoice : RuleKind::kSequence;
    }
    if (rule.children.empty()) return builder_.add_literal(node.text);
    return builder_.add(std::move(rule));
  }

  const EbnfGrammar& grammar_;
  AutomatonBuilder& builder_;
  std::vector<RuleId> rules_;
  std::vector<size_t> pending_;
};

Result<Automaton> automaton_of(ByteDfa dfa, GrammarBudget& budget) {
  AutomatonBuilder builder(budget);
  ROOST_TRY(const RuleId root, builder.add_bytes(std::move(dfa)));
  return builder.finish(root, limits::kRuleDepthMax, Refusal::GrammarInvalid);
}

}  // namespace

Result<Automaton> compile_regex_grammar(std::string_view pattern) {
  GrammarBudget budget;
  ROOST_TRY(ByteDfa dfa, compile_regex(pattern, {}, budget));
  return automaton_of(std::move(dfa), budget);
}

Result<Automaton> compile_choice(const std::vector<std::string>& texts) {
  GrammarBudget budget;
  ROOST_TRY(ByteDfa dfa, literal_dfa(texts, budget));
  return automaton_of(std::move(dfa), budget);
}

Result<Automaton> compile_ebnf(std::string_view text) {
  if (text.size() > limits::kGrammarBytesMax)
    return Error{Refusal::GrammarTooLarge,
                 fmt::format("have {} bytes, at most {}", text.size(), limits::kGrammarBytesMax)};
  ROOST_TRY(const EbnfGrammar grammar, parse_ebnf(text));
  GrammarBudget budget;
  AutomatonBuilder builder(budget);
  ROOST_TRY(const RuleId root, EbnfCompiler(grammar, builder).compile());
  return builder.finish(root, limits::kRuleDepthMax, Refusal::GrammarInvalid);
}

}  // namespace roost
