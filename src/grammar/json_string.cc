// The grammar of RFC 8259, section 7, edge by edge.
#include "grammar/json_string.h"

#include "base/json.h"
#include "grammar/code_points.h"
#include "grammar/regex.h"

namespace roost {

namespace {

void add_hex(ByteNfa& nfa, int32_t from, int32_t to) {
  nfa.add_edge(from, '0', '9', to);
  nfa.add_edge(from, 'a', 'f', to);
  nfa.add_edge(from, 'A', 'F', to);
}

// The last n hexadecimal digits of an escape.
void add_hex_digits(ByteNfa& nfa, int32_t from, int n, int32_t to) {
  for (; n > 1; --n) {
    const int32_t next = nfa.add_state();
    add_hex(nfa, from, next);
    from = next;
  }
  add_hex(nfa, from, to);
}

// \uXXXX from behind the u on: a code point, or a high and a low surrogate.
void add_unicode_escape(ByteNfa& nfa, int32_t from, int32_t to) {
  for (const char c : std::string_view("0123456789abcefABCEF")) {
    const int32_t next = nfa.add_text(from, std::string_view(&c, 1));
    add_hex_digits(nfa, next, 3, to);
  }
  const int32_t d = nfa.add_state();
  nfa.add_edge(from, 'd', 'd', d);
  nfa.add_edge(from, 'D', 'D', d);
  const int32_t plain = nfa.add_state(), high = nfa.add_state();
  nfa.add_edge(d, '0', '7', plain);
  add_hex_digits(nfa, plain, 2, to);
  nfa.add_edge(d, '8', '9', high);
  nfa.add_edge(d, 'a', 'b', high);
  nfa.add_edge(d, 'A', 'B', high);
  const int32_t behind_high = nfa.add_state();
  add_hex_digits(nfa, high, 2, behind_high);
  const int32_t u = nfa.add_text(behind_high, "\\u");
  const int32_t low_d = nfa.add_state(), low = nfa.add_state();
  nfa.add_edge(u, 'd', 'd', low_d);
  nfa.add_edge(u, 'D', 'D', low_d);
  nfa.add_edge(low_d, 'c', 'f', low);
  nfa.add_edge(low_d, 'C', 'F', low);
  add_hex_digits(nfa, low, 2, to);
}

DfaPtr make_any_string() {
  ByteNfa nfa;
  const int32_t inside = nfa.add_text(0, "\"");
  const CodePoints raw = {{0x20, 0x21}, {0x23, 0x5B}, {0x5D, 0x10FFFF}};
  add_code_points(nfa, raw, TextForm::kRaw, inside, inside);
  const int32_t escape = nfa.add_text(inside, "\\");
  for (const char c : std::string_view("\"\\/bfnrt"))
    nfa.add_edge(escape, static_cast<uint8_t>(c), static_cast<uint8_t>(c), inside);
  add_unicode_escape(nfa, nfa.add_text(escape, "u"), inside);
  nfa.accept(nfa.add_text(inside, "\""), 0);
  GrammarBudget budget;
  return lasting_dfa(nfa.determinize(budget));
}

DfaPtr make_any_key() {
  GrammarBudget budget;
  const RegexOptions options{.form = TextForm::kJsonString, .is_search = true};
  return lasting_dfa(compile_regex("", options, budget));
}

}  // namespace

const DfaPtr& any_string_dfa() {
  static const DfaPtr kDfa = make_any_string();
  return kDfa;
}

const DfaPtr& any_key_dfa() {
  static const DfaPtr kDfa = make_any_key();
  return kDfa;
}

std::string spelled_string(std::string_view text) {
  std::string out;
  json::write_string(text, out);
  return out;
}

}  // namespace roost
