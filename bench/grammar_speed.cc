// What forms of replies cost over a vocabulary of published size: compiling, preparing, and the
// masks along replies, the first of each state apart from those that come again. CSV on stdout.
//
// The vocabulary is made here: as many tokens, lengths and kinds of pieces as such models have.
#include <algorithm>
#include <cstdio>
#include <ctime>
#include <set>
#include <string>
#include <vector>

#include "base/json.h"
#include "base/random.h"
#include "grammar/json_schema.h"
#include "grammar/matcher.h"
#include "grammar/text_grammar.h"

namespace roost {
namespace {

constexpr int64_t kTokens = 248'320;
constexpr int kReplies = 16, kStepsMax = 120;

// Of this thread's own time, so that what else runs on the machine counts little.
double now_ms() {
  timespec now{};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) * 1e3 + static_cast<double>(now.tv_nsec) * 1e-6;
}

// All bytes, then words with and without a blank in front, Chinese, numbers, runs of marks, blanks.
std::shared_ptr<const TokenVocabulary> make_vocabulary() {
  SeededRandom random(1);
  const auto below = [&](uint64_t n) { return random.next_u64() % n; };
  std::set<std::string> pieces;
  for (int byte = 0; byte < 256; ++byte) pieces.insert(std::string(1, static_cast<char>(byte)));
  const std::string_view letters = "etaoinshrdlucmfwypvbgkjqxzETAOINSR";
  const std::string_view marks = "\"'\\{}[]():;,.<>=/+-*_#!?&|%$@`~";
  while (pieces.size() < static_cast<size_t>(kTokens)) {
    std::string piece;
    const uint64_t kind = below(100);
    if (kind < 70) {
      if (below(2) == 0) piece = " ";
      for (uint64_t n = 2 + below(8); n > 0; --n)
        piece += letters[below(below(letters.size()) + 1)];
    } else if (kind < 88) {
      for (uint64_t n = 1 + below(3); n > 0; --n) {
        const uint64_t code = 0x4E00 + below(0x5000);
        piece += static_cast<char>(0xE0 | (code >> 12));
        piece += static_cast<char>(0x80 | ((code >> 6) & 0x3F));
        piece += static_cast<char>(0x80 | (code & 0x3F));
      }
    } else if (kind < 96) {
      for (uint64_t n = 1 + below(4); n > 0; --n) piece += marks[below(marks.size())];
      if (below(3) == 0) piece += letters[below(letters.size())];
    } else {
      piece = std::string(1 + below(3), '\n') + std::string(below(30), ' ');
    }
    pieces.insert(piece);
  }
  return std::make_shared<const TokenVocabulary>(
      std::vector<std::string>(pieces.begin(), pieces.end()));
}

struct Form {
  const char* name;
  Result<Automaton> (*compile)();
};

Result<Automaton> schema(std::string_view text) {
  return compile_json_schema(json::parse(text).value(), {});
}

const Form kForms[] = {
    {"json object", [] { return compile_json_object({}); }},
    {"flat schema",
     [] {
       return schema(R"({"type":"object","properties":{"name":{"type":"string"},
           "age":{"type":"integer"},"tags":{"type":"array","items":{"type":"string","maxLength":20}}},
           "required":["name","age","tags"],"additionalProperties":false})");
     }},
    {"pattern",
     [] {
       return schema(R"({"type":"array","items":{"type":"string","pattern":"^[a-z]+-\\d+$"}})");
     }},
    {"letters", [] { return compile_regex_grammar("\\p{L}+"); }},
    {"words", [] { return compile_regex_grammar("(\\p{Lu}\\p{Ll}* ?)+"); }},
    {"nested lists",
     [] {
       return compile_ebnf(
           "root ::= list\nlist ::= \"(\" ws (item (\",\" ws item)*)? \")\"\n"
           "item ::= list | [a-z]+ | [0-9]+\nws ::= [ \\n\\t]*\n");
     }},
    {"arithmetic",
     [] {
       return compile_ebnf(
           "root ::= (expr \"=\" ws term \"\\n\")+\nexpr ::= term ([-+*/] term)*\n"
           "term ::= ident | num | \"(\" ws expr \")\" ws\n"
           "ident ::= [a-z] [a-z0-9_]* ws\nnum ::= [0-9]+ ws\nws ::= [ \\t\\n]*\n");
     }},
};

double at(const std::vector<double>& sorted, double share) {
  return sorted.empty() ? 0 : sorted[static_cast<size_t>(share * double(sorted.size() - 1))];
}

// The times of all masks of replies that draw among what is allowed, by a seed.
std::vector<double> mask_times(const GrammarUse& use, uint64_t seed) {
  SeededRandom random(seed);
  const TokenVocabulary& vocabulary = use.grammar->vocabulary();
  std::vector<uint32_t> mask(mask_words(vocabulary.n_tokens()));
  std::vector<double> out;
  for (int reply = 0; reply < kReplies; ++reply) {
    GrammarMatcher matcher(use);
    for (int step = 0; step < kStepsMax && !matcher.must_end(); ++step) {
      const double from = now_ms();
      matcher.fill_mask(mask);
      out.push_back(now_ms() - from);
      int32_t token = static_cast<int32_t>(random.next_u64() % uint64_t(vocabulary.n_tokens()));
      for (int64_t n = 0; n < vocabulary.n_tokens() && !is_allowed(mask, token); ++n)
        token = static_cast<int32_t>((token + 1) % vocabulary.n_tokens());
      if (!matcher.accept(token)) break;
    }
  }
  std::sort(out.begin(), out.end());
  return out;
}

int run() {
  double from = now_ms();
  const auto vocabulary = make_vocabulary();
  std::printf("# %lld tokens, %zu nodes, %.0f ms\n", static_cast<long long>(kTokens),
              vocabulary->tree().nodes().size(), now_ms() - from);
  std::printf("form,compile_ms,prepare_ms,first_max_ms,again_p50_ms,again_p99_ms,again_max_ms\n");
  for (const Form& form : kForms) {
    from = now_ms();
    Result<Automaton> automaton = form.compile();
    if (!automaton) return std::printf("%s is refused\n", form.name), 1;
    const double compile_ms = now_ms() - from;
    const GrammarUse use{std::make_shared<const Grammar>(*std::move(automaton), vocabulary), false};
    from = now_ms();
    use.grammar->prepare();
    const double prepare_ms = now_ms() - from;
    const std::vector<double> first = mask_times(use, 5), again = mask_times(use, 5);
    std::printf("%s,%.1f,%.1f,%.2f,%.3f,%.3f,%.3f\n", form.name, compile_ms, prepare_ms,
                first.back(), at(again, 0.5), at(again, 0.99), again.back());
  }
  return 0;
}

}  // namespace
}  // namespace roost

int main() {
  return roost::run();
}
