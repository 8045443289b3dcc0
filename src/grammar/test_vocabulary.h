// Vocabularies and small questions for the tests of this folder.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "grammar/json_schema.h"
#include "grammar/matcher.h"

namespace roost::testing {

// Token i is the byte i; further ones are the usual pieces of JSON and prose.
inline std::shared_ptr<const TokenVocabulary> make_vocabulary(size_t walk_nodes_max) {
  std::vector<std::string> bytes;
  for (int byte = 0; byte < 256; ++byte) bytes.emplace_back(1, static_cast<char>(byte));
  for (const char* text :
       {"\"",    "\",",      "\":",  "\": ",      "\": \"", "{\"",      "\"}",     "\"]",
        "\"}}",  "}, {",     "[1",   "],",        ", ",     "\", \"",   "true",    "false",
        "null",  "tru",      "name", "\"name\":", "na",     "me\": \"", "age",     "12",
        "123",   "0.5",      "e5",   "-1",        "  ",     "\n",       "\n  ",    "\n\n",
        "hello", " world",   "\\n",  "\\\"",      "\\u00",  "\\ud83d",  "\\ude00", "é",
        "日本",  "\xE6\x97", "\xA5", "</think>",  "</th",   "ink>\n\n", "k>\n{\"", "\"x\": 1",
        "a\"",   "ab\",\"",  "{}",   "[]",        "{}]",    "x\\\"y",   "\\\\",    "2024-0",
        "2-29",  "abc",      "aaaa", "bbbbbbbb",  "=\"",    "<",        "<<"})
    bytes.emplace_back(text);
  bytes.emplace_back();  // a control token
  return std::make_shared<const TokenVocabulary>(std::move(bytes), walk_nodes_max);
}

inline std::shared_ptr<const TokenVocabulary> test_vocabulary() {
  static const auto kVocabulary = make_vocabulary(TokenVocabulary::kWalkNodesMax);
  return kVocabulary;
}

inline GrammarUse use_of(Automaton automaton,
                         std::shared_ptr<const TokenVocabulary> vocabulary = test_vocabulary()) {
  return {std::make_shared<const Grammar>(std::move(automaton), std::move(vocabulary)), false};
}

inline GrammarUse use_of_schema(std::string_view schema, const JsonOptions& options = {}) {
  Result<Automaton> automaton = compile_json_schema(json::parse(schema).value(), options);
  if (!automaton) {
    ADD_FAILURE() << schema << ": " << to_string(automaton.error());
    return use_of_schema("true");
  }
  return use_of(*std::move(automaton));
}

// Byte by byte: every prefix must be alive, the whole must be able to end.
inline bool accepts(const GrammarUse& use, std::string_view text) {
  GrammarMatcher matcher(use);
  for (const char c : text)
    if (!matcher.accept(static_cast<uint8_t>(c))) return false;
  return matcher.may_end();
}

inline std::string refusal_of_schema(std::string_view schema) {
  const Result<Automaton> automaton = compile_json_schema(json::parse(schema).value());
  return automaton ? "" : to_string(automaton.error());
}

}  // namespace roost::testing
