// How long masks of tokens take: mask_tool FOLDER [WALKS], where FOLDER holds a tokenizer. Follows
// random replies of several forms, each form twice: as the first request of it, and again when its
// states are known. One line of CSV a form and pass.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <random>
#include <string>
#include <vector>

#include "base/file.h"
#include "base/json.h"
#include "grammar/call_grammar.h"
#include "grammar/json_schema.h"
#include "grammar/matcher.h"
#include "grammar/text_grammar.h"
#include "text/tokenizer.h"

namespace roost {
namespace {

using Clock = std::chrono::steady_clock;

double ms_since(Clock::time_point begin) {
  return std::chrono::duration<double, std::milli>(Clock::now() - begin).count();
}

json::Value parsed(const std::string& text) {
  return json::parse(text).value();
}

// A tool as agents have them; a hundred of these are 150 KB.
CallForm agent_tool(int i) {
  const std::string words(180, 'w');
  return {fmt::format("tool_{}", i),
          parsed(fmt::format(
              R"({{"type":"object","properties":{{"path":{{"type":"string","description":"{0}"}},
                 "lines":{{"type":"array","items":{{"type":"integer","minimum":1}}}},
                 "mode":{{"enum":["read","write","append"]}},"deep":{{"type":"boolean"}},
                 "options":{{"type":"object","properties":{{"a":{{"type":"string"}},"b{1}":{{"type":"number"}}}},
                 "description":"{0}"}}}},"required":["path"],"additionalProperties":false}})",
              words, i)),
          false};
}

struct Form {
  const char* name;
  Result<Automaton> (*compile)();
};

const Form kForms[] = {
    {"any object", [] { return compile_json_object({}); }},
    {"person",
     [] {
       return compile_json_schema(
           parsed(R"({"type":"object","properties":{"name":{"type":"string","minLength":2,
               "maxLength":40},"age":{"type":"integer","minimum":0,"maximum":130},"tags":{"type":
               "array","items":{"type":"string"},"maxItems":8},"mail":{"type":"string","format":
               "email"},"note":{"type":"string","pattern":"^[A-Z].*[.!]$"}},"required":["name",
               "age","tags","mail","note"],"additionalProperties":false})"));
     }},
    {"expression", [] { return compile_regex_grammar("[A-Z][a-z]{2,30}( \\p{L}+){1,20}\\."); }},
    {"grammar",
     [] {
       return compile_ebnf(
           "root ::= item+\nitem ::= [a-z]+ \"(\" root? \")\" | \"\\\"\" [^\"]* \"\\\"\"");
     }},
    {"calls of 100 tools",
     [] {
       std::vector<CallForm> tools;
       for (int i = 0; i < 100; ++i) tools.push_back(agent_tool(i));
       return compile_calls(tools, false);
     }},
    {"strict calls of 20 tools",
     [] {
       std::vector<CallForm> tools;
       for (int i = 0; i < 20; ++i) tools.push_back(agent_tool(i));
       return compile_strict_calls(tools);
     }},
};

void print(const Form& form, const char* pass, double compile_ms, size_t n_bytes,
           std::vector<double>& masks, double accept_ms) {
  std::sort(masks.begin(), masks.end());
  const auto at = [&](double q) {
    return masks[static_cast<size_t>(q * static_cast<double>(masks.size() - 1))];
  };
  fmt::print("{},{},{:.1f},{},{},{:.3f},{:.3f},{:.3f},{:.4f}\n", form.name, pass, compile_ms,
             n_bytes, masks.size(), at(0.5), at(0.99), masks.back(),
             accept_ms / static_cast<double>(masks.size()));
}

void measure(const Form& form, const std::shared_ptr<const TokenVocabulary>& vocabulary,
             int n_walks) {
  Clock::time_point begin = Clock::now();
  Result<Automaton> automaton = form.compile();
  const double compile_ms = ms_since(begin);
  if (!automaton) {
    fmt::print("{}: {}\n", form.name, to_string(automaton.error()));
    return;
  }
  const GrammarUse use{std::make_shared<const Grammar>(*std::move(automaton), vocabulary), false};
  std::vector<uint32_t> mask(mask_words(vocabulary->n_tokens()));
  std::vector<int32_t> allowed;
  for (const char* pass : {"first", "again"}) {
    std::vector<double> masks;
    double accept_ms = 0;
    std::mt19937_64 random(1);
    for (int walk = 0; walk < n_walks; ++walk) {
      GrammarMatcher matcher(use);
      for (int step = 0; step < 200 && !matcher.must_end(); ++step) {
        begin = Clock::now();
        matcher.fill_mask(mask);
        masks.push_back(ms_since(begin));
        allowed.clear();
        for (int32_t id = 0; id < vocabulary->n_tokens(); ++id)
          if (is_allowed(mask, id)) allowed.push_back(id);
        if (allowed.empty()) break;
        // Every other time a token that closes something, so that walks come far.
        int32_t token = allowed[random() % allowed.size()];
        if (step % 2 == 0)
          for (const int32_t id : allowed)
            if (vocabulary->bytes_of(id).find_first_of("\"}])>\n") != std::string_view::npos)
              token = id;
        begin = Clock::now();
        if (!matcher.accept(token)) std::abort();
        accept_ms += ms_since(begin);
      }
    }
    print(form, pass, compile_ms, use.grammar->n_bytes(), masks, accept_ms);
  }
}

int run(const std::string& folder, int n_walks) {
  const auto file = [&](const char* name) {
    return json::parse(read_file(folder + "/" + name, limits::kTokenizerBytesMax).value()).value();
  };
  const Tokenizer tokenizer =
      Tokenizer::create(file("tokenizer.json"), file("tokenizer_config.json")).value();
  std::vector<std::string> bytes;
  for (Token id = 0; id < tokenizer.n_tokens(); ++id)
    bytes.emplace_back(tokenizer.is_special(id) ? std::string_view() : tokenizer.bytes_of(id));
  const Clock::time_point begin = Clock::now();
  const auto vocabulary = std::make_shared<const TokenVocabulary>(std::move(bytes));
  fmt::print("# {} tokens, {} nodes, {:.0f} ms\n", vocabulary->n_tokens(),
             vocabulary->tree().nodes().size(), ms_since(begin));
  fmt::print("form,pass,compile_ms,bytes,masks,p50_ms,p99_ms,max_ms,accept_ms\n");
  for (const Form& form : kForms) measure(form, vocabulary, n_walks);
  return 0;
}

}  // namespace
}  // namespace roost

int main(int n, char** words) {
  if (n < 2) return 2;
  return roost::run(words[1], n > 2 ? std::atoi(words[2]) : 20);
}
