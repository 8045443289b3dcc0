// Asks compiled grammars, for grammar_oracle.py. Each line of stdin is one question
//   {"schema": …} or {"regex": "…"}, "texts": ["…", …], "n_walks": N, "seed": S
// and each line of stdout its answer: {"refused": "code: detail"} or
//   {"accepts": [true, …], "walks": ["…", …]}
// where a walk is a text made of tokens that the masks let, to its end.
#include <fmt/format.h>

#include <iostream>
#include <random>
#include <string>

#include "base/json.h"
#include "base/utf8.h"
#include "grammar/json_schema.h"
#include "grammar/matcher.h"
#include "grammar/text_grammar.h"

namespace roost {
namespace {

constexpr int kStepsMax = 400;

std::shared_ptr<const TokenVocabulary> make_vocabulary() {
  std::vector<std::string> bytes;
  for (int byte = 0; byte < 256; ++byte) bytes.emplace_back(1, static_cast<char>(byte));
  for (const char* text : {"\",\"", "\":", "\": ", "{\"", "\"}", "\"]", "true", "null", "ab", "\\n",
                           "\\u00", "12", "é", "日本", ", ", "]}", "-0.", "}}"})
    bytes.emplace_back(text);
  return std::make_shared<const TokenVocabulary>(std::move(bytes));
}

Result<Automaton> compile(const json::Value& question) {
  if (const json::Value* schema = question.find("schema")) return compile_json_schema(*schema);
  return compile_regex_grammar(question.find("regex")->as_string());
}

bool accepts(const GrammarUse& use, std::string_view text) {
  GrammarMatcher matcher(use);
  for (const char c : text)
    if (!matcher.accept(static_cast<uint8_t>(c))) return false;
  return matcher.may_end();
}

// Nothing when it has not ended after kStepsMax tokens.
std::optional<std::string> walk(const GrammarUse& use, std::mt19937_64& random) {
  const TokenVocabulary& vocabulary = use.grammar->vocabulary();
  GrammarMatcher matcher(use);
  std::vector<uint32_t> mask(mask_words(vocabulary.n_tokens()));
  std::string out;
  for (int step = 0; step < kStepsMax; ++step) {
    if (matcher.must_end() || (matcher.may_end() && random() % 3 == 0)) return out;
    matcher.fill_mask(mask);
    std::vector<int32_t> ids;
    for (int32_t id = 0; id < vocabulary.n_tokens(); ++id) {
      if (!is_allowed(mask, id)) continue;
      const bool is_closing = vocabulary.bytes_of(id).find_first_of("\"}]") != std::string::npos;
      ids.insert(ids.end(), is_closing ? (step < 60 ? 12 : 200) : 1, id);
    }
    if (ids.empty()) return "\xFF nothing is allowed behind " + out;
    const int32_t token = ids[random() % ids.size()];
    out += vocabulary.bytes_of(token);
    if (!matcher.accept(token)) return "\xFF the mask lies about " + out;
  }
  return std::nullopt;
}

json::Value answer(const json::Value& question,
                   const std::shared_ptr<const TokenVocabulary>& vocabulary) {
  json::Value out = json::Value::object();
  Result<Automaton> automaton = compile(question);
  if (!automaton) {
    out.set("refused", json::Value::string(to_string(automaton.error())));
    return out;
  }
  const GrammarUse use{std::make_shared<const Grammar>(*std::move(automaton), vocabulary), false};
  json::Value accepted = json::Value::array(), walks = json::Value::array();
  for (const json::Value& text : question.find("texts")->items())
    accepted.push(json::Value::boolean(accepts(use, text.as_string())));
  std::mt19937_64 random(*question.find("seed")->as_uint64());
  for (int64_t i = 0; i < *question.find("n_walks")->as_int64(); ++i)
    if (const std::optional<std::string> text = walk(use, random))
      walks.push(json::Value::string(replace_invalid_utf8(*text)));
  out.set("accepts", std::move(accepted));
  out.set("walks", std::move(walks));
  return out;
}

}  // namespace
}  // namespace roost

int main() {
  const auto vocabulary = roost::make_vocabulary();
  for (std::string line; std::getline(std::cin, line);) {
    const roost::Result<roost::json::Value> question = roost::json::parse(line);
    if (!question) return 1;
    std::cout << roost::json::write(roost::answer(*question, vocabulary)) << std::endl;
  }
}
