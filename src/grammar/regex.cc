// Parser of expressions, and what they become.
#include "grammar/regex.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "base/utf8.h"
#include "grammar/unicode_properties.h"

namespace roost {

namespace {

constexpr char32_t kLast = 0x10FFFF;

const CodePoints kDigits = {{'0', '9'}};
const CodePoints kWord = {{'0', '9'}, {'A', 'Z'}, {'_', '_'}, {'a', 'z'}};
const CodePoints kSpace = {{'\t', '\r'}, {' ', ' '}};
const CodePoints kNotLineEnds = {{0, 9}, {11, 12}, {14, 0x2027}, {0x202A, kLast}};
const CodePoints kAny = {{0, kLast}};

Error unsupported(size_t offset, std::string_view construct) {
  return Error{Refusal::RegexUnsupported, fmt::format("offset {}: {}", offset, construct)};
}

Error malformed(size_t offset, std::string_view what) {
  return Error{Refusal::GrammarInvalid, fmt::format("line 1, column {}: {}", offset + 1, what)};
}

bool is_digit(char c) {
  return c >= '0' && c <= '9';
}

// Reads what stands behind a backslash: one code point, or a class of several.
class EscapeReader {
 public:
  EscapeReader(std::string_view text, size_t& at) : text_(text), at_(at) {}

  Result<CodePoints> read() {
    const size_t begin = at_ - 1;  // at the backslash
    if (at_ >= text_.size()) return malformed(begin, "an escape is cut off");
    const char c = text_[at_++];
    switch (c) {
      case 'd':
        return kDigits;
      case 'D':
        return complement(kDigits);
      case 'w':
        return kWord;
      case 'W':
        return complement(kWord);
      case 's':
        return kSpace;
      case 'S':
        return complement(kSpace);
      case 'n':
        return one('\n');
      case 'r':
        return one('\r');
      case 't':
        return one('\t');
      case 'f':
        return one('\f');
      case 'v':
        return one('\v');
      case '0':
        if (at_ < text_.size() && is_digit(text_[at_]))
          return unsupported(begin, "an octal escape");
        return one(0);
      case 'x':
        return hex(begin, 2);
      case 'u':
        return unicode(begin);
      case 'p':
      case 'P':
        return property(begin, c == 'P');
      default:
        break;
    }
    if (is_digit(c)) return unsupported(begin, fmt::format("the back-reference \\{}", c));
    const bool is_punctuation = static_cast<unsigned char>(c) < 0x80 && c > ' ' &&
                                !(c >= 'a' && c <= 'z') && !(c >= 'A' && c <= 'Z') && c != 0x7F;
    if (!is_punctuation) return unsupported(begin, "an escape of this letter");
    return one(static_cast<char32_t>(c));
  }

 private:
  static CodePoints one(char32_t c) { return {{c, c}}; }

  std::optional<char32_t> digits(size_t n) {
    if (at_ + n > text_.size() || n == 0 || n > 6) return std::nullopt;
    char32_t value = 0;
    for (size_t i = 0; i < n; ++i) {
      const char c = text_[at_ + i];
      const char lower = static_cast<char>(c | 0x20);
      if (is_digit(c))
        value = value * 16 + static_cast<char32_t>(c - '0');
      else if (lower >= 'a' && lower <= 'f')
        value = value * 16 + static_cast<char32_t>(lower - 'a' + 10);
      else
        return std::nullopt;
    }
    at_ += n;
    return value;
  }

  Result<CodePoints> hex(size_t begin, size_t n) {
    const std::optional<char32_t> value = digits(n);
    if (!value) return malformed(begin, fmt::format("{} hexadecimal digits are missing", n));
    return one(*value);
  }

  Result<CodePoints> unicode(size_t begin) {
    if (at_ < text_.size() && text_[at_] == '{') {
      const size_t close = text_.find('}', at_);
      if (close == std::string_view::npos) return malformed(begin, "} is missing");
      const size_t n = close - at_ - 1;
      ++at_;
      const std::optional<char32_t> value = digits(n);
      if (!value || *value > kLast) return malformed(begin, "the code point is not valid");
      ++at_;
      return one(*value);
    }
    const std::optional<char32_t> high = digits(4);
    if (!high) return malformed(begin, "4 hexadecimal digits are missing");
    if (*high < 0xD800 || *high > 0xDBFF) return one(*high);
    if (text_.substr(at_, 2) != "\\u") return unsupported(begin, "a lone surrogate");
    at_ += 2;
    const std::optional<char32_t> low = digits(4);
    if (!low || *low < 0xDC00 || *low > 0xDFFF) return unsupported(begin, "a lone surrogate");
    return one(0x10000 + ((*high - 0xD800) << 10) + (*low - 0xDC00));
  }

  Result<CodePoints> property(size_t begin, bool is_negated) {
    const size_t close = text_.find('}', at_);
    if (at_ >= text_.size() || text_[at_] != '{' || close == std::string_view::npos)
      return malformed(begin, "a property's name in braces is missing");
    const std::string_view name = text_.substr(at_ + 1, close - at_ - 1);
    at_ = close + 1;
    const std::optional<CodePoints> set = unicode_property(name);
    if (!set) return unsupported(begin, "a property that is no general category and no script");
    return is_negated ? complement(*set) : *set;
  }

  std::string_view text_;
  size_t& at_;
};

char32_t take_code_point(std::string_view text, size_t& at) {
  const Utf8Unit unit = read_utf8(text, at);
  at += unit.n_bytes;
  return unit.code_point;
}

struct Node {
  enum class Kind { kClass, kSequence, kChoice, kRepeat };
  Kind kind = Kind::kSequence;
  CodePoints set;
  std::vector<size_t> children;
  int min = 0, max = -1;  // max -1: no limit
};

class RegexParser {
 public:
  explicit RegexParser(std::string_view text) : text_(text) {}

  struct Branch {
    size_t node = 0;
    bool starts_here = false, ends_here = false;  // ^ and $
  };

  Result<std::vector<Branch>> parse() {
    std::vector<Branch> branches;
    do {
      Branch branch;
      if (peek() == '^') ++at_, branch.starts_here = true;
      ROOST_TRY(branch.node, sequence(0));
      if (peek() == '$') {
        ++at_, branch.ends_here = true;
        if (at_ < text_.size() && peek() != '|') return unsupported(at_ - 1, "$ inside a branch");
      }
      branches.push_back(branch);
    } while (take('|'));
    if (at_ < text_.size()) return malformed(at_, "this bracket was not opened");
    return branches;
  }

  const std::vector<Node>& nodes() const { return nodes_; }

 private:
  char peek() const { return at_ < text_.size() ? text_[at_] : '\0'; }
  bool take(char c) {
    if (at_ >= text_.size() || text_[at_] != c) return false;
    ++at_;
    return true;
  }
  size_t add(Node node) {
    nodes_.push_back(std::move(node));
    return nodes_.size() - 1;
  }

  Result<size_t> choice(int depth) {
    Node node{Node::Kind::kChoice, {}, {}};
    do {
      ROOST_TRY(const size_t child, sequence(depth));
      node.children.push_back(child);
    } while (take('|'));
    return add(std::move(node));
  }

  Result<size_t> sequence(int depth) {
    Node node{Node::Kind::kSequence, {}, {}};
    while (at_ < text_.size() && peek() != '|' && peek() != ')') {
      if (peek() == '$') {
        if (depth == 0) break;
        return unsupported(at_, "$ inside a group");
      }
      if (peek() == '^') return unsupported(at_, "^ that does not begin a branch");
      ROOST_TRY(const size_t atom, this->atom(depth));
      ROOST_TRY(const size_t child, repeated(atom));
      node.children.push_back(child);
    }
    return add(std::move(node));
  }

  Result<size_t> atom(int depth) {
    const char c = peek();
    if (c == '(') return group(depth);
    Node node{Node::Kind::kClass, {}, {}};
    if (c == '[') {
      ROOST_TRY(node.set, parse_class(text_, at_));
    } else if (c == '.') {
      ++at_;
      node.set = kNotLineEnds;
    } else if (c == '\\') {
      const char letter = at_ + 1 < text_.size() ? text_[at_ + 1] : '\0';
      if (letter == 'b' || letter == 'B' || letter == 'A' || letter == 'Z' || letter == 'z')
        return unsupported(at_, fmt::format("\\{}", letter));
      if (letter == 'k') return unsupported(at_, "a back-reference by name");
      ++at_;
      ROOST_TRY(node.set, EscapeReader(text_, at_).read());
    } else if (c == '*' || c == '+' || c == '?') {
      return malformed(at_, "there is nothing to repeat");
    } else if (c == '{') {
      return malformed(at_, "a literal { is written \\{");
    } else {
      const char32_t code_point = take_code_point(text_, at_);
      node.set = {{code_point, code_point}};
    }
    return add(std::move(node));
  }

  Result<size_t> group(int depth) {
    const size_t begin = at_++;
    if (depth + 1 > limits::kRegexDepthMax)
      return Error{Refusal::GrammarTooLarge,
                   fmt::format("more than {} groups inside each other", limits::kRegexDepthMax)};
    if (take('?')) {
      if (take('P')) {
        if (peek() != '<') return unsupported(begin, "a back-reference by name");
      }
      if (peek() == '<') {
        const char next = at_ + 1 < text_.size() ? text_[at_ + 1] : '\0';
        if (next == '=' || next == '!') return unsupported(begin, "look-behind");
        const size_t close = text_.find('>', at_);
        if (close == std::string_view::npos) return malformed(begin, "the name has no end");
        at_ = close + 1;
      } else if (!take(':')) {
        if (peek() == '=' || peek() == '!') return unsupported(begin, "look-ahead");
        return unsupported(begin, "flags or another kind of group");
      }
    }
    ROOST_TRY(const size_t node, choice(depth + 1));
    if (!take(')')) return malformed(begin, "this bracket is not closed");
    return node;
  }

  // {m}, {m,}, {m,n}; nothing when the brace is none of them and stands for itself.
  std::optional<std::pair<int, int>> counts() {
    size_t at = at_ + 1;
    const auto number = [&]() -> std::optional<int> {
      int value = 0;
      const size_t begin = at;
      while (at < text_.size() && is_digit(text_[at]) && value <= limits::kRegexRepeatMax)
        value = value * 10 + (text_[at++] - '0');
      while (at < text_.size() && is_digit(text_[at])) ++at;
      if (at == begin) return std::nullopt;
      return value;
    };
    const std::optional<int> low = number();
    if (!low) return std::nullopt;
    int high = *low;
    if (at < text_.size() && text_[at] == ',') {
      ++at;
      high = number().value_or(-1);
    }
    if (at >= text_.size() || text_[at] != '}') return std::nullopt;
    at_ = at + 1;
    return std::pair{*low, high};
  }

  Result<size_t> repeated(size_t child) {
    const size_t begin = at_;
    Node node{Node::Kind::kRepeat, {}, {child}};
    if (take('*')) {
      node.min = 0;
    } else if (take('+')) {
      node.min = 1;
    } else if (take('?')) {
      node.min = 0, node.max = 1;
    } else if (peek() == '{') {
      const auto range = counts();
      if (!range) return malformed(begin, "a literal { is written \\{");
      std::tie(node.min, node.max) = *range;
      if (node.max >= 0 && node.max < node.min)
        return malformed(begin, "the counts are out of order");
      if (std::max(node.min, node.max) > limits::kRegexRepeatMax)
        return Error{Refusal::GrammarTooLarge, fmt::format("offset {}: more than {} repetitions",
                                                           begin, limits::kRegexRepeatMax)};
    } else {
      return child;
    }
    if (!take('?') && peek() == '+') return unsupported(at_, "a possessive mark");
    if (peek() == '*' || peek() == '+' || peek() == '?' || peek() == '{')
      return malformed(at_, "a repetition of a repetition");
    return add(std::move(node));
  }

  std::string_view text_;
  size_t at_ = 0;
  std::vector<Node> nodes_;
};

// Lays nodes into an automaton; depth is that of the groups.
class RegexWriter {
 public:
  RegexWriter(const std::vector<Node>& nodes, ByteNfa& nfa, TextForm form, GrammarBudget& budget)
      : nodes_(nodes), nfa_(nfa), form_(form), budget_(budget) {}

  // The state behind the node when it begins at `from`.
  Result<int32_t> write(size_t idx, int32_t from) {
    const Node& node = nodes_[idx];
    if (nfa_.n_states() > static_cast<size_t>(limits::kGrammarStatesMax))
      ROOST_TRY_DO(budget_.take_states(limits::kGrammarStatesMax + 1));
    switch (node.kind) {
      case Node::Kind::kClass: {
        const int32_t to = nfa_.add_state();
        add_code_points(nfa_, node.set, form_, from, to);
        return to;
      }
      case Node::Kind::kSequence:
        for (const size_t child : node.children) {
          ROOST_TRY(from, write(child, from));
        }
        return from;
      case Node::Kind::kChoice: {
        const int32_t to = nfa_.add_state();
        for (const size_t child : node.children) {
          const int32_t begin = nfa_.add_state();
          nfa_.add_empty(from, begin);
          ROOST_TRY(const int32_t end, write(child, begin));
          nfa_.add_empty(end, to);
        }
        return to;
      }
      case Node::Kind::kRepeat:
        return repeat(node, from);
    }
    return from;
  }

 private:
  Result<int32_t> repeat(const Node& node, int32_t from) {
    for (int i = 0; i < node.min; ++i) {
      ROOST_TRY(from, write(node.children[0], from));
    }
    const int32_t to = nfa_.add_state();
    if (node.max < 0) {
      const int32_t loop = nfa_.add_state();
      nfa_.add_empty(from, loop);
      ROOST_TRY(const int32_t end, write(node.children[0], loop));
      nfa_.add_empty(end, loop);
      nfa_.add_empty(loop, to);
      return to;
    }
    for (int i = node.min; i < node.max; ++i) {
      nfa_.add_empty(from, to);
      ROOST_TRY(from, write(node.children[0], from));
    }
    nfa_.add_empty(from, to);
    return to;
  }

  const std::vector<Node>& nodes_;
  ByteNfa& nfa_;
  TextForm form_;
  GrammarBudget& budget_;
};

int32_t add_any_text(ByteNfa& nfa, TextForm form, int32_t from) {
  const int32_t loop = nfa.add_state();
  nfa.add_empty(from, loop);
  add_code_points(nfa, kAny, form, loop, loop);
  return loop;
}

}  // namespace

Result<CodePoints> parse_class(std::string_view pattern, size_t& at) {
  const size_t begin = at++;
  bool is_negated = false;
  if (at < pattern.size() && pattern[at] == '^') ++at, is_negated = true;
  CodePoints set;
  const auto member = [&]() -> Result<CodePoints> {
    if (pattern[at] != '\\') {
      const char32_t c = take_code_point(pattern, at);
      return CodePoints{{c, c}};
    }
    ++at;
    if (at < pattern.size() && pattern[at] == 'b') return ++at, CodePoints{{'\b', '\b'}};
    return EscapeReader(pattern, at).read();
  };
  while (at < pattern.size() && pattern[at] != ']') {
    const size_t here = at;
    ROOST_TRY(CodePoints low, member());
    const bool is_range = at + 1 < pattern.size() && pattern[at] == '-' && pattern[at + 1] != ']';
    if (is_range) {
      ++at;
      ROOST_TRY(const CodePoints high, member());
      const bool are_single = low.size() == 1 && low[0].first == low[0].second &&
                              high.size() == 1 && high[0].first == high[0].second;
      if (!are_single || high[0].first < low[0].first)
        return malformed(here, "this is no range of characters");
      low[0].second = high[0].first;
    }
    set.insert(set.end(), low.begin(), low.end());
  }
  if (at >= pattern.size()) return malformed(begin, "the class is not closed");
  ++at;
  set = normalized(std::move(set));
  return is_negated ? complement(set) : set;
}

Result<ByteDfa> compile_regex(std::string_view pattern, RegexOptions options,
                              GrammarBudget& budget) {
  if (pattern.size() > limits::kGrammarBytesMax)
    return Error{budget.refusal, fmt::format("the expression has {} bytes, at most {}",
                                             pattern.size(), limits::kGrammarBytesMax)};
  RegexParser parser(pattern);
  ROOST_TRY(const std::vector<RegexParser::Branch> branches, parser.parse());
  ByteNfa nfa;
  RegexWriter writer(parser.nodes(), nfa, options.form, budget);
  const bool is_json = options.form == TextForm::kJsonString;
  for (const RegexParser::Branch& branch : branches) {
    int32_t at = nfa.add_state();
    nfa.add_empty(0, at);
    if (is_json) at = nfa.add_text(at, "\"");
    if (options.is_search && !branch.starts_here) at = add_any_text(nfa, options.form, at);
    ROOST_TRY(at, writer.write(branch.node, at));
    if (options.is_search && !branch.ends_here) at = add_any_text(nfa, options.form, at);
    if (is_json) at = nfa.add_text(at, "\"");
    nfa.accept(at, 0);
  }
  return nfa.determinize(budget);
}

}  // namespace roost
