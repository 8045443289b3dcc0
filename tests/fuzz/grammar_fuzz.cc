// Any bytes as a JSON schema, an expression or a grammar: compiled within its bounds or refused,
// and what is compiled never gets stuck: every allowed token is accepted, and something is allowed
// until the end.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "base/check.h"
#include "base/json.h"
#include "grammar/json_schema.h"
#include "grammar/matcher.h"
#include "grammar/text_grammar.h"

namespace roost {
namespace {

std::shared_ptr<const TokenVocabulary> vocabulary() {
  static const auto kVocabulary = [] {
    std::vector<std::string> bytes;
    for (int byte = 0; byte < 256; ++byte) bytes.emplace_back(1, static_cast<char>(byte));
    for (const char* text : {"\",\"", "\": ", "{\"", "\"}", "true", "\\u00", "12", "é", "ab", "]}"})
      bytes.emplace_back(text);
    return std::make_shared<const TokenVocabulary>(std::move(bytes));
  }();
  return kVocabulary;
}

Result<Automaton> compile(uint8_t kind, std::string_view text) {
  if (kind == 'r') return compile_regex_grammar(text);
  if (kind == 'g') return compile_ebnf(text);
  ROOST_TRY(const json::Value schema, json::parse(text));
  return compile_json_schema(schema, {.has_space = kind != 't'});
}

void follow(Automaton automaton, uint64_t random) {
  GrammarMatcher matcher(
      {std::make_shared<const Grammar>(std::move(automaton), vocabulary()), false});
  std::vector<uint32_t> mask(mask_words(vocabulary()->n_tokens()));
  for (int step = 0; step < 24; ++step) {
    matcher.fill_mask(mask);
    std::vector<int32_t> ids;
    for (int32_t id = 0; id < vocabulary()->n_tokens(); ++id)
      if (is_allowed(mask, id)) ids.push_back(id);
    ROOST_CHECK(ids.empty() == matcher.must_end());
    ROOST_CHECK(!ids.empty() || matcher.may_end());
    if (ids.empty()) return;
    random = random * 6364136223846793005u + 1442695040888963407u;
    const int32_t token = ids[(random >> 33) % ids.size()];
    ROOST_CHECK(matcher.accept(token));
    if (step % 5 != 4) continue;
    matcher.rollback(1);
    ROOST_CHECK(matcher.accept(token));
  }
}

}  // namespace
}  // namespace roost

// The first byte says what the rest is: r an expression, g a grammar, t a schema without space,
// else a schema.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size < 1) return 0;
  const std::string_view text(reinterpret_cast<const char*>(data + 1), size - 1);
  roost::Result<roost::Automaton> automaton = roost::compile(data[0], text);
  if (automaton)
    roost::follow(*std::move(automaton), size);
  else
    ROOST_CHECK(!automaton.error().detail.empty());
  return 0;
}
