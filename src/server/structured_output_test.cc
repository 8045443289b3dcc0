#include "server/structured_output.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>
#include <thread>

#include "server/grammar_store.h"
#include "server/request_fields.h"
#include "tests/sim/fledgling_text.h"

namespace roost {
namespace {

using ::testing::HasSubstr;
using Kind = OutputFormat::Kind;

struct Read {
  std::string refusal;  // empty: it was read
  std::string param;
  OutputFormat format;
  std::vector<std::string> ignored;
};

Read read(const std::string& members) {
  const json::Value body = json::parse("{" + members + "}").value();
  ParseNotes notes;
  Fields fields = Fields::open(body, "", notes).value();
  Read out;
  Result<void> done = read_structured_outputs(fields, out.format);
  if (done) done = read_response_format(fields, out.format);
  if (done) done = read_text_format(fields, out.format);
  if (done) done = read_messages_format(fields, "output_format", out.format);
  if (!done) out.refusal = code_of(done.error().refusal);
  out.param = notes.param;
  out.ignored = notes.ignored;
  return out;
}

TEST(StructuredOutput, every_spelling_is_one_format) {
  EXPECT_EQ(read("").format.kind, Kind::kFree);
  EXPECT_EQ(read(R"("response_format":{"type":"text"})").format.kind, Kind::kFree);
  EXPECT_EQ(read(R"("response_format":{"type":"json_object"})").format.kind, Kind::kJsonObject);
  EXPECT_EQ(read(R"("structured_outputs":{"json_object":true})").format.kind, Kind::kJsonObject);
  const std::string schema = R"({"type":"null"})";
  for (
      const std::string& members :
      {R"("response_format":{"type":"json_schema","json_schema":{"name":"n","strict":false,"schema":)" +
           schema + "}}",
       R"("format":{"type":"json_schema","name":"n","schema":)" + schema + "}",
       R"("output_format":{"type":"json_schema","schema":)" + schema + "}",
       R"("structured_outputs":{"json":)" + schema + "}",
       std::string(R"("structured_outputs":{"json":"{\"type\":\"null\"}"})")}) {
    const Read result = read(members);
    EXPECT_EQ(result.refusal, "") << members;
    EXPECT_EQ(result.format.kind, Kind::kSchema) << members;
    EXPECT_EQ(json::write(result.format.schema), schema) << members;
    EXPECT_TRUE(result.format.has_space);
    EXPECT_TRUE(result.ignored.empty());
  }
  const Read regex =
      read(R"("structured_outputs":{"regex":"a+","disable_any_whitespace":true,"x":1})");
  EXPECT_EQ(regex.format.kind, Kind::kRegex);
  EXPECT_EQ(regex.format.text, "a+");
  EXPECT_FALSE(regex.format.has_space);
  EXPECT_EQ(regex.ignored, std::vector<std::string>{"/structured_outputs/x"});
  EXPECT_EQ(read(R"("structured_outputs":{"choice":["a","b"]})").format.choices.size(), 2u);
  EXPECT_EQ(read(R"("structured_outputs":{"grammar":"root ::= \"a\""})").format.kind,
            Kind::kGrammar);
}

TEST(StructuredOutput, what_is_no_format_is_refused_with_its_path) {
  const std::string many(limits::kChoiceBytesMax + 1, 'x');
  for (const auto& [members, code, param] : std::vector<std::array<std::string, 3>>{
           {R"("response_format":{"type":"xml"})", "request.field_value", "response_format.type"},
           {R"("response_format":{"type":"json_schema"})", "request.missing_field",
            "response_format.json_schema"},
           {R"("response_format":{"type":"json_schema","json_schema":{}})", "request.missing_field",
            "response_format.json_schema.schema"},
           {R"("response_format":{"type":"json_schema","json_schema":{"schema":3}})",
            "request.field_type", "response_format.json_schema.schema"},
           {R"("response_format":3)", "request.field_type", "response_format"},
           {R"("structured_outputs":{})", "request.missing_field", "structured_outputs"},
           {R"("structured_outputs":{"json_object":false})", "request.missing_field",
            "structured_outputs"},
           {R"("structured_outputs":{"json":"{"})", "json.invalid", "structured_outputs.json"},
           {R"("structured_outputs":{"regex":1})", "request.field_type",
            "structured_outputs.regex"},
           {R"("structured_outputs":{"choice":[]})", "request.field_range",
            "structured_outputs.choice"},
           {R"("structured_outputs":{"choice":[1]})", "request.field_type",
            "structured_outputs.choice"},
           {R"("structured_outputs":{"choice":[")" + many + "\"]}", "request.too_many_items",
            "structured_outputs.choice"},
           {R"("structured_outputs":{"regex":"a","choice":["a"]})", "request.field_conflict",
            "structured_outputs.choice"},
           {R"("structured_outputs":{"regex":"a"},"response_format":{"type":"json_object"})",
            "request.field_conflict", "response_format"},
           {R"("structured_outputs":{"json":{},"whitespace_pattern":"x"})",
            "request.unsupported_field", "structured_outputs.whitespace_pattern"},
           {R"("structured_outputs":{"structural_tag":{}})", "request.unsupported_field",
            "structured_outputs.structural_tag"}}) {
    const Read result = read(members);
    EXPECT_EQ(result.refusal, code) << members.substr(0, 100);
    EXPECT_EQ(result.param, param) << members.substr(0, 100);
  }
}

OutputFormat format_of(const std::string& schema) {
  OutputFormat out;
  out.kind = Kind::kSchema;
  out.schema = json::parse(schema).value();
  return out;
}

Result<GrammarUse> use_of(GrammarStore& store, const OutputFormat& format, bool is_thinking) {
  ReplyForm form;
  form.output = format;
  std::vector<UnenforcedPlace> unenforced;
  return store.use_of(form, is_thinking, unenforced);
}

TEST(GrammarStore, equal_requests_share_what_was_compiled) {
  GrammarStore store(fledgling_tokenizer());
  EXPECT_FALSE(use_of(store, OutputFormat(), false).value());
  const GrammarUse first = use_of(store, format_of(R"({"type":"null"})"), false).value();
  const GrammarUse again = use_of(store, format_of(R"({"type":"null"})"), true).value();
  EXPECT_EQ(first.grammar, again.grammar);
  EXPECT_FALSE(first.is_behind_reasoning);
  EXPECT_TRUE(again.is_behind_reasoning);
  OutputFormat tight = format_of(R"({"type":"null"})");
  tight.has_space = false;
  EXPECT_NE(first.grammar, use_of(store, tight, false).value().grammar);
  OutputFormat choice;
  choice.kind = Kind::kChoice;
  choice.choices = {"ab", "c"};
  const auto two = use_of(store, choice, false).value().grammar;
  choice.choices = {"a", "bc"};
  EXPECT_NE(two, use_of(store, choice, false).value().grammar);
  EXPECT_EQ(store.n_kept(), 4u);
  EXPECT_EQ(use_of(store, format_of("false"), false).error().refusal, Refusal::SchemaUnsatisfiable);
}

TEST(GrammarStore, equal_requests_that_come_together_compile_once) {
  GrammarStore store(fledgling_tokenizer());
  for (int round = 0; round < 20; ++round) {
    const OutputFormat format =
        format_of(R"({"type":"string","maxLength":)" + std::to_string(100 + round) + "}");
    std::vector<std::shared_ptr<const Grammar>> got(8);
    std::vector<std::thread> threads;
    for (auto& one : got)
      threads.emplace_back([&] { one = use_of(store, format, false).value().grammar; });
    for (std::thread& thread : threads) thread.join();
    EXPECT_EQ(std::set(got.begin(), got.end()).size(), 1u);
  }
}

TEST(GrammarStore, the_one_used_least_recently_is_dropped_beyond_the_limit) {
  GrammarStore store(fledgling_tokenizer(), 400'000);
  const auto use = [&](int i) {
    return use_of(store, format_of("{\"const\":" + std::to_string(i) + "}"), false).value().grammar;
  };
  const std::shared_ptr<const Grammar> first = use(0);
  for (int i = 1; i < 200; ++i) {
    use(i);
    EXPECT_EQ(use(0), first);
  }
  EXPECT_LT(store.n_kept(), 200u);
}

TEST(GrammarStore, a_schema_is_followed_in_the_models_own_tokens) {
  GrammarStore store(fledgling_tokenizer());
  const GrammarUse use =
      use_of(store, format_of(R"({"type":"object","properties":{"name":{"type":"string"}},
                                "required":["name"],"additionalProperties":false})"),
             false)
          .value();
  GrammarMatcher matcher(use);
  std::vector<uint32_t> mask(mask_words(fledgling_tokenizer().n_tokens()));
  for (const Token token : fledgling_tokenizer().encode(R"({"name": "Ünï \"quoted\" 日本"})")) {
    matcher.fill_mask(mask);
    EXPECT_TRUE(is_allowed(mask, token));
    ASSERT_TRUE(matcher.accept(token));
  }
  EXPECT_TRUE(matcher.must_end());
  const Token control = *fledgling_tokenizer().find_added("<|im_end|>");
  EXPECT_FALSE(GrammarMatcher(use).accept(control));
}

}  // namespace
}  // namespace roost
