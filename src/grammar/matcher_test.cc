#include "grammar/matcher.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "grammar/test_vocabulary.h"
#include "grammar/text_grammar.h"
#include "tests/count_allocations.h"

namespace roost {
namespace {

using testing::accepts;
using testing::test_vocabulary;
using testing::use_of;
using testing::use_of_schema;

// Schemas whose states differ: wide and narrow, counted, with keys of every kind.
const std::vector<std::string> kSchemas = {
    "{}",
    R"({"type":"object","properties":{"name":{"type":"string","minLength":2,"maxLength":9},
       "age":{"type":"integer","minimum":0,"maximum":130}},"required":["name","age"]})",
    R"({"type":"array","items":{"type":"object","properties":{"na":{"enum":["abc","aaaa",1.5]}},
       "additionalProperties":{"type":["number","null"]},"minProperties":1},"minItems":1,"maxItems":4})",
    R"({"type":"string","pattern":"^(ab|a+é?)*[x\"]{1,4}$"})",
    R"({"type":"object","patternProperties":{"^n":{"type":"boolean"},"e$":{"type":"string","maxLength":40}},
       "additionalProperties":false})",
    R"({"anyOf":[{"type":"string","format":"date"},{"type":"string","maxLength":12},{"type":"integer"}]})",
    R"({"type":"array","items":{"enum":["abc","ab","a\"",true,null]},"uniqueItems":true})",
};

std::vector<GrammarUse> all_uses() {
  std::vector<GrammarUse> uses;
  for (const std::string& schema : kSchemas) uses.push_back(use_of_schema(schema));
  GrammarUse thinking = use_of_schema(kSchemas[1]);
  thinking.is_behind_reasoning = true;
  uses.push_back(thinking);
  uses.push_back(use_of(compile_ebnf("root ::= (\"x=\\\"\" [^\"]* \"\\\"\" | root2) \" \"? root?\n"
                                     "root2 ::= \"<\" root \">\" | \"é\"+")
                            .value()));
  uses.push_back(use_of(compile_regex_grammar("([a-z]{1,9}, )*\\w+ (日本)?").value()));
  return uses;
}

// A token that the mask lets, those that close something more often, so that walks come to an end.
int32_t draw(std::span<const uint32_t> mask, std::mt19937_64& random) {
  std::vector<int32_t> ids;
  const TokenVocabulary& vocabulary = *test_vocabulary();
  for (int32_t id = 0; id < vocabulary.n_tokens(); ++id) {
    if (!is_allowed(mask, id)) continue;
    const std::string_view bytes = vocabulary.bytes_of(id);
    const bool is_closing = bytes.find_first_of("\"}],>") != std::string_view::npos;
    ids.insert(ids.end(), is_closing || id >= 256 ? 12 : 1, id);
  }
  return ids.empty() ? -1 : ids[random() % ids.size()];
}

std::vector<uint32_t> mask_of(GrammarMatcher& matcher) {
  std::vector<uint32_t> mask(mask_words(test_vocabulary()->n_tokens()), ~0u);
  matcher.fill_mask(mask);
  return mask;
}

TEST(GrammarMatcher, the_mask_is_exactly_what_is_accepted) {
  std::mt19937_64 random(7);
  for (const GrammarUse& use : all_uses()) {
    for (int walk = 0; walk < 5; ++walk) {
      GrammarMatcher matcher(use);
      for (int step = 0; step < 60 && !matcher.must_end(); ++step) {
        const std::vector<uint32_t> mask = mask_of(matcher);
        for (int32_t id = 0; id < test_vocabulary()->n_tokens(); ++id) {
          GrammarMatcher other = matcher;
          ASSERT_EQ(other.accept(id), is_allowed(mask, id))
              << "token " << test_vocabulary()->bytes_of(id) << " after step " << step;
        }
        const int32_t token = draw(mask, random);
        ASSERT_GE(token, 0);
        ASSERT_TRUE(matcher.accept(token));
      }
    }
  }
}

// Masks of parts of the tree against a walk over all of it: of a form, the same tokens.
TEST(GrammarMatcher, masks_of_parts_of_the_tree_say_what_a_walk_says) {
  const auto parts = testing::make_vocabulary(0), walk = testing::make_vocabulary(SIZE_MAX);
  for (const GrammarUse& use : all_uses()) {
    const Automaton& automaton = use.grammar->automaton();
    const auto with = [&](const std::shared_ptr<const TokenVocabulary>& vocabulary) {
      GrammarUse out = use_of(automaton, vocabulary);
      out.is_behind_reasoning = use.is_behind_reasoning;
      out.grammar->prepare();
      return out;
    };
    std::mt19937_64 random(3);
    GrammarMatcher a(with(parts)), b(with(walk));
    for (int step = 0; step < 60 && !a.must_end(); ++step) {
      const std::vector<uint32_t> mask = mask_of(a);
      ASSERT_EQ(mask, mask_of(b)) << "after step " << step;
      const int32_t token = draw(mask, random);
      ASSERT_TRUE(a.accept(token) && b.accept(token));
    }
  }
}

TEST(GrammarMatcher, something_is_always_allowed_until_the_end) {
  std::mt19937_64 random(11);
  for (const GrammarUse& use : all_uses()) {
    for (int walk = 0; walk < 15; ++walk) {
      GrammarMatcher matcher(use);
      for (int step = 0; step < 200; ++step) {
        const int32_t token = draw(mask_of(matcher), random);
        EXPECT_EQ(token < 0, matcher.must_end());
        if (token < 0) {
          EXPECT_TRUE(matcher.may_end());
          break;
        }
        ASSERT_TRUE(matcher.accept(token));
      }
    }
  }
}

TEST(GrammarMatcher, tokens_taken_back_leave_no_trace) {
  std::mt19937_64 random(3);
  for (const GrammarUse& use : all_uses()) {
    GrammarMatcher matcher(use), plain(use);
    for (int step = 0; step < 40 && !plain.must_end(); ++step) {
      const std::vector<uint32_t> before = mask_of(matcher);
      ASSERT_EQ(before, mask_of(plain));
      size_t n_drafted = 0;
      for (; n_drafted < random() % 5 && !matcher.must_end(); ++n_drafted)
        ASSERT_TRUE(matcher.accept(draw(mask_of(matcher), random)));
      matcher.rollback(n_drafted);
      ASSERT_EQ(before, mask_of(matcher));
      const int32_t token = draw(before, random);
      ASSERT_TRUE(matcher.accept(token));
      ASSERT_TRUE(plain.accept(token));
      ASSERT_EQ(matcher.may_end(), plain.may_end());
    }
  }
}

TEST(GrammarMatcher, a_refused_token_changes_nothing) {
  GrammarMatcher matcher(use_of_schema(R"({"type":"integer"})"));
  ASSERT_TRUE(matcher.accept('1'));
  const std::vector<uint32_t> mask = mask_of(matcher);
  for (const int32_t token :
       {int32_t{'x'}, -1, 1 << 20, static_cast<int32_t>(test_vocabulary()->n_tokens() - 1)})
    EXPECT_FALSE(matcher.accept(token));
  EXPECT_EQ(mask, mask_of(matcher));
  EXPECT_TRUE(matcher.may_end());
  EXPECT_FALSE(matcher.must_end());
}

TEST(GrammarMatcher, after_the_value_only_the_end_is_allowed) {
  GrammarMatcher matcher(use_of_schema(R"({"type":"object","maxProperties":0})"));
  ASSERT_TRUE(matcher.accept('{'));
  EXPECT_FALSE(matcher.may_end());
  ASSERT_TRUE(matcher.accept('}'));
  EXPECT_TRUE(matcher.may_end());
  EXPECT_TRUE(matcher.must_end());
  const std::vector<uint32_t> mask = mask_of(matcher);
  EXPECT_TRUE(std::all_of(mask.begin(), mask.end(), [](uint32_t word) { return word == 0; }));
}

TEST(GrammarMatcher, reasoning_is_free_and_the_grammar_begins_behind_it) {
  GrammarUse use = use_of_schema(R"({"type":"integer"})");
  use.is_behind_reasoning = true;
  for (const char* text : {"</think>5", "I {\"think\" <</th </think>\n\n-12", "é</think>\n0"})
    EXPECT_TRUE(accepts(use, text)) << text;
  for (const char* text : {"5", "</think>", "x</think>\n\n\n1", "</think>x", "x</think> 1"})
    EXPECT_FALSE(accepts(use, text)) << text;
}

TEST(GrammarMatcher, many_readings_stay_bounded) {
  // Each item may be read by either branch: without merging, readings would double.
  const GrammarUse use = use_of_schema(
      R"({"type":"array","items":{"anyOf":[{"type":"array","items":{"type":"integer"}},
          {"type":"array","items":{"type":"number"}}]}})");
  std::string text = "[[1]";
  for (int i = 0; i < 300; ++i) text += ",[1,2]";
  EXPECT_TRUE(accepts(use, text + "]"));
}

TEST(TokenTree, holds_every_token_once_in_the_order_of_bytes) {
  const TokenVocabulary& vocabulary = *test_vocabulary();
  const TokenTree& tree = vocabulary.tree();
  std::string path;
  std::vector<int> n_seen(static_cast<size_t>(vocabulary.n_tokens()));
  for (size_t i = 0; i < tree.nodes().size(); ++i) {
    const TokenTree::Node& node = tree.nodes()[i];
    path.resize(node.depth);
    path += static_cast<char>(node.byte);
    EXPECT_GT(node.end, i);
    for (int32_t id = node.first_token; id >= 0; id = tree.next_token(id)) {
      EXPECT_EQ(vocabulary.bytes_of(id), path);
      ++n_seen[static_cast<size_t>(id)];
    }
  }
  for (int32_t id = 0; id < vocabulary.n_tokens(); ++id)
    EXPECT_EQ(n_seen[static_cast<size_t>(id)], !vocabulary.bytes_of(id).empty());
}

// Its memory is taken when it begins, but for the masks of states that no reply has come to before.
TEST(GrammarMatcher, a_reply_of_a_known_form_takes_no_memory_on_its_way) {
  const GrammarUse use = use_of_schema(R"({"type":"object","properties":{"name":{"type":"string",
      "maxLength":9},"list":{"type":"array","items":{"type":"integer"}}},"required":["name"]})");
  const std::string text = R"({"name": "a\"b日本", "list": [1, 22, -3], "x": {"y": [null]}})";
  std::vector<uint32_t> mask(mask_words(use.grammar->vocabulary().n_tokens()));
  for (const bool is_first : {true, false}) {
    GrammarMatcher matcher(use);
    const int64_t n_before = n_allocations;
    for (const char c : text) {
      matcher.fill_mask(mask);
      ASSERT_TRUE(matcher.accept(static_cast<uint8_t>(c)));
    }
    matcher.rollback(3);
    ASSERT_TRUE(matcher.accept(']'));
    const int64_t n_taken = n_allocations - n_before;
    if (!is_first) {
      EXPECT_EQ(n_taken, 0);
    }
  }
}

}  // namespace
}  // namespace roost
