// A rule ends where the next `name ::=` begins.
#include "grammar/ebnf_parser.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "base/limits.h"
#include "base/utf8.h"
#include "grammar/regex.h"

namespace roost {

namespace {

bool is_name_char(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' ||
         c == '_';
}

class EbnfParser {
 public:
  explicit EbnfParser(std::string_view text) : text_(text) {}

  Result<EbnfGrammar> parse() {
    for (skip_space(); at_ < text_.size(); skip_space()) {
      const size_t begin = at_;
      const std::string name = take_name();
      if (name.empty()) return invalid(begin, "the name of a rule is missing");
      skip_space();
      if (!take("::=")) return invalid(at_, "::= is missing");
      const size_t rule = rule_named(name, begin);
      if (grammar_.rules.size() > limits::kGrammarRulesMax)
        return Error{Refusal::GrammarTooLarge,
                     fmt::format("more than {} rules", limits::kGrammarRulesMax)};
      if (is_defined_[rule]) return invalid(begin, fmt::format("{} is defined twice", name));
      is_defined_[rule] = true;
      grammar_.rules[rule].offset = begin;
      ROOST_TRY(const size_t node, choice(0));
      grammar_.rules[rule].node = node;
      if (at_ < text_.size() && !begins_rule()) return invalid(at_, "this is not expected here");
    }
    for (size_t i = 0; i < grammar_.rules.size(); ++i)
      if (!is_defined_[i])
        return invalid(grammar_.rules[i].offset,
                       fmt::format("the rule {} is not defined", grammar_.rules[i].name));
    const auto root = ids_.find("root");
    if (root == ids_.end()) return invalid(0, "the rule root is missing");
    grammar_.root = root->second;
    mark_empty_rules();
    ROOST_TRY_DO(refuse_left_recursion());
    mark_regular_rules();
    return std::move(grammar_);
  }

 private:
  Error invalid(size_t offset, std::string_view what) const {
    const std::string_view before = text_.substr(0, offset);
    const auto line = 1 + std::count(before.begin(), before.end(), '\n');
    const size_t begin = before.rfind('\n') == std::string_view::npos ? 0 : before.rfind('\n') + 1;
    return Error{Refusal::GrammarInvalid,
                 fmt::format("line {}, column {}: {}", line, offset - begin + 1, what)};
  }

  void skip_space() {
    while (at_ < text_.size()) {
      const char c = text_[at_];
      if (c == '#') {
        at_ = std::min(text_.find('\n', at_), text_.size());
      } else if (c == ' ' || c == '\t' || c == '\n' || c == '\r') {
        ++at_;
      } else {
        return;
      }
    }
  }

  char peek() const { return at_ < text_.size() ? text_[at_] : '\0'; }
  bool take(std::string_view word) {
    if (text_.substr(at_, word.size()) != word) return false;
    at_ += word.size();
    return true;
  }
  std::string take_name() {
    const size_t begin = at_;
    while (at_ < text_.size() && is_name_char(text_[at_])) ++at_;
    return std::string(text_.substr(begin, std::min<size_t>(at_ - begin, limits::kLabelBytesMax)));
  }
  bool begins_rule() {
    const size_t begin = at_;
    const bool has_name = !take_name().empty();
    skip_space();
    const bool is_rule = has_name && take("::=");
    at_ = begin;
    return is_rule;
  }

  size_t rule_named(const std::string& name, size_t offset) {
    const auto [it, is_new] = ids_.try_emplace(name, grammar_.rules.size());
    if (is_new) {
      grammar_.rules.push_back({name, 0, offset});
      is_defined_.push_back(false);
    }
    return it->second;
  }

  size_t add(EbnfNode node) {
    grammar_.nodes.push_back(std::move(node));
    return grammar_.nodes.size() - 1;
  }

  Result<size_t> choice(int depth) {
    EbnfNode node{.kind = EbnfNode::Kind::kChoice};
    do {
      ROOST_TRY(const size_t child, sequence(depth));
      node.children.push_back(child);
      skip_space();
    } while (take("|"));
    return add(std::move(node));
  }

  Result<size_t> sequence(int depth) {
    EbnfNode node{.kind = EbnfNode::Kind::kSequence};
    for (skip_space(); at_ < text_.size(); skip_space()) {
      if (peek() == '|' || peek() == ')' || begins_rule()) break;
      ROOST_TRY(const size_t item, this->item(depth));
      ROOST_TRY(const size_t child, repeated(item));
      node.children.push_back(child);
    }
    return add(std::move(node));
  }

  Result<size_t> item(int depth) {
    const size_t begin = at_;
    if (take("(")) {
      if (depth + 1 > limits::kRegexDepthMax)
        return Error{Refusal::GrammarTooLarge,
                     fmt::format("more than {} groups inside each other", limits::kRegexDepthMax)};
      ROOST_TRY(const size_t node, choice(depth + 1));
      if (!take(")")) return invalid(begin, "this bracket is not closed");
      return node;
    }
    if (peek() == '"') return literal();
    if (peek() == '[') {
      EbnfNode node{.kind = EbnfNode::Kind::kClass};
      Result<CodePoints> set = parse_class(text_, at_);
      if (!set) return invalid(begin, "the class cannot be read");
      node.set = *std::move(set);
      return add(std::move(node));
    }
    if (take(".")) {
      EbnfNode node{.kind = EbnfNode::Kind::kClass};
      node.set = {{0, 0x10FFFF}};
      return add(std::move(node));
    }
    const std::string name = take_name();
    if (name.empty()) return invalid(begin, "this is not expected here");
    EbnfNode node{.kind = EbnfNode::Kind::kReference};
    node.rule = rule_named(name, begin);
    return add(std::move(node));
  }

  Result<size_t> literal() {
    const size_t begin = at_++;
    EbnfNode node{.kind = EbnfNode::Kind::kText};
    while (at_ < text_.size() && peek() != '"') {
      if (peek() != '\\') {
        node.text += text_[at_++];
        continue;
      }
      const std::optional<char32_t> c = escape();
      if (!c) return invalid(at_, "this escape is not known");
      append_utf8(*c, node.text);
    }
    if (!take("\"")) return invalid(begin, "the literal is not closed");
    return add(std::move(node));
  }

  std::optional<char32_t> escape() {
    const char c = at_ + 1 < text_.size() ? text_[at_ + 1] : '\0';
    constexpr std::pair<char, char32_t> kPlain[] = {{'n', '\n'}, {'r', '\r'},  {'t', '\t'},
                                                    {'"', '"'},  {'\\', '\\'}, {'\'', '\''},
                                                    {'[', '['},  {']', ']'}};
    for (const auto& [letter, value] : kPlain)
      if (c == letter) return at_ += 2, value;
    const size_t n = c == 'x' ? 2 : c == 'u' ? 4 : c == 'U' ? 8 : 0;
    if (n == 0 || at_ + 2 + n > text_.size()) return std::nullopt;
    char32_t value = 0;
    for (size_t i = 0; i < n; ++i) {
      const char digit = text_[at_ + 2 + i];
      const char lower = static_cast<char>(digit | 0x20);
      if (digit >= '0' && digit <= '9')
        value = value * 16 + static_cast<char32_t>(digit - '0');
      else if (lower >= 'a' && lower <= 'f')
        value = value * 16 + static_cast<char32_t>(lower - 'a' + 10);
      else
        return std::nullopt;
      if (value > 0x10FFFF) return std::nullopt;
    }
    if (value >= 0xD800 && value <= 0xDFFF) return std::nullopt;
    at_ += 2 + n;
    return value;
  }

  std::optional<int> take_number() {
    const size_t begin = at_;
    int value = 0;
    for (; peek() >= '0' && peek() <= '9'; ++at_)
      value = std::min(value * 10 + (peek() - '0'), limits::kRegexRepeatMax + 1);
    return at_ == begin ? std::nullopt : std::optional(value);
  }

  Result<size_t> repeated(size_t child) {
    skip_space();
    const size_t begin = at_;
    EbnfNode node{.kind = EbnfNode::Kind::kRepeat};
    node.children = {child};
    if (take("*")) {
      node.min = 0;
    } else if (take("+")) {
      node.min = 1;
    } else if (take("?")) {
      node.max = 1;
    } else if (take("{")) {
      skip_space();
      const std::optional<int> low = take_number();
      skip_space();
      node.min = node.max = low.value_or(0);
      const bool has_comma = take(",");
      skip_space();
      if (has_comma) node.max = take_number().value_or(-1);
      skip_space();
      const bool is_upside_down = node.max >= 0 && node.max < node.min;
      if ((!low && !has_comma) || !take("}") || is_upside_down)
        return invalid(begin, "the counts cannot be read");
      if (std::max(node.min, node.max) > limits::kRegexRepeatMax)
        return Error{Refusal::GrammarTooLarge,
                     fmt::format("more than {} repetitions", limits::kRegexRepeatMax)};
    } else {
      return child;
    }
    return repeated_again(add(std::move(node)));
  }

  // A second mark behind a repetition would need a group.
  Result<size_t> repeated_again(size_t node) {
    skip_space();
    if (peek() == '*' || peek() == '+' || peek() == '?' || peek() == '{')
      return invalid(at_, "a repetition of a repetition");
    return node;
  }

  // ---- What rules are like. Groups are nested at most kRegexDepthMax deep, so nodes may recurse.

  bool can_be_empty(size_t idx) const {
    const EbnfNode& node = grammar_.nodes[idx];
    const auto child_can = [&](size_t child) { return can_be_empty(child); };
    switch (node.kind) {
      case EbnfNode::Kind::kText:
        return node.text.empty();
      case EbnfNode::Kind::kClass:
        return false;
      case EbnfNode::Kind::kReference:
        return grammar_.rules[node.rule].can_be_empty;
      case EbnfNode::Kind::kSequence:
        return std::all_of(node.children.begin(), node.children.end(), child_can);
      case EbnfNode::Kind::kChoice:
        return std::any_of(node.children.begin(), node.children.end(), child_can);
      case EbnfNode::Kind::kRepeat:
        return node.min == 0 || can_be_empty(node.children[0]);
    }
    return false;
  }

  void mark_empty_rules() {
    for (bool has_changed = true; has_changed;) {
      has_changed = false;
      for (EbnfRule& rule : grammar_.rules) {
        if (rule.can_be_empty || !can_be_empty(rule.node)) continue;
        rule.can_be_empty = has_changed = true;
      }
    }
  }

  // Rules that may stand first in the node.
  void collect_first(size_t idx, std::vector<size_t>& out) const {
    const EbnfNode& node = grammar_.nodes[idx];
    if (node.kind == EbnfNode::Kind::kReference) out.push_back(node.rule);
    for (const size_t child : node.children) {
      collect_first(child, out);
      if (node.kind == EbnfNode::Kind::kSequence && !can_be_empty(child)) return;
    }
  }

  void collect_all(size_t idx, std::vector<size_t>& out) const {
    const EbnfNode& node = grammar_.nodes[idx];
    if (node.kind == EbnfNode::Kind::kReference) out.push_back(node.rule);
    for (const size_t child : node.children) collect_all(child, out);
  }

  // Takes away, again and again, the rules whose followers are all away; what stays runs in circles
  // or leads into one.
  std::vector<bool> in_circles(const std::vector<std::vector<size_t>>& followers) const {
    const size_t n = followers.size();
    std::vector<std::vector<size_t>> before(n);
    std::vector<size_t> n_left(n), work;
    for (size_t i = 0; i < n; ++i) {
      n_left[i] = followers[i].size();
      for (const size_t to : followers[i]) before[to].push_back(i);
      if (n_left[i] == 0) work.push_back(i);
    }
    std::vector<bool> stays(n, true);
    while (!work.empty()) {
      const size_t i = work.back();
      work.pop_back();
      stays[i] = false;
      for (const size_t from : before[i])
        if (--n_left[from] == 0) work.push_back(from);
    }
    return stays;
  }

  Result<void> refuse_left_recursion() const {
    std::vector<std::vector<size_t>> first(grammar_.rules.size());
    for (size_t i = 0; i < first.size(); ++i) collect_first(grammar_.rules[i].node, first[i]);
    const std::vector<bool> stays = in_circles(first);
    const auto found = std::find(stays.begin(), stays.end(), true);
    if (found == stays.end()) return {};
    const EbnfRule& rule = grammar_.rules[static_cast<size_t>(found - stays.begin())];
    return invalid(rule.offset, fmt::format("the rule {} may begin with itself, or begins with one "
                                            "that may",
                                            rule.name));
  }

  void mark_regular_rules() {
    std::vector<std::vector<size_t>> all(grammar_.rules.size());
    for (size_t i = 0; i < all.size(); ++i) collect_all(grammar_.rules[i].node, all[i]);
    const std::vector<bool> stays = in_circles(all);
    for (size_t i = 0; i < all.size(); ++i) grammar_.rules[i].is_regular = !stays[i];
  }

  std::string_view text_;
  size_t at_ = 0;
  EbnfGrammar grammar_;
  std::map<std::string, size_t> ids_;
  std::vector<bool> is_defined_;
};

}  // namespace

Result<EbnfGrammar> parse_ebnf(std::string_view text) {
  return EbnfParser(text).parse();
}

}  // namespace roost
