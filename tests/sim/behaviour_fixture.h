// The cells of the behaviour matrix that a scripted engine can decide: a request in a dialect,
// streamed or whole, and what a client puts together from the answer.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "tests/sim/dialects.h"
#include "tests/sim/service_fixture.h"

namespace roost {

inline const std::string kSchema =
    R"({"type":"object","properties":{"city":{"type":"string"},"days":{"type":"integer"}},"required":["city"]})";

struct Cell {
  Dialect dialect;
  bool is_stream;
};

// The cells of the behaviour matrix: dialect and stream.
class BehaviourFixture : public ServiceFixture, public testing::WithParamInterface<Cell> {
 protected:
  Dialect dialect() const { return GetParam().dialect; }
  bool is_raw() const { return dialect() == Dialect::kCompletions; }

  std::shared_ptr<FakeExchange> ask(const std::string& members, bool is_stream) {
    std::string all = members;
    if (is_stream) {
      all += (all.empty() ? "" : ",") + std::string(R"("stream":true)");
      if (dialect() == Dialect::kChat || is_raw())
        all += R"(,"stream_options":{"include_usage":true})";
    }
    return post(path_of(dialect()), body_of(dialect(), all));
  }

  ToldReply told(const std::string& members, bool is_stream) {
    const auto exchange = ask(members, is_stream);
    const HttpResponse& response = exchange->wait();
    EXPECT_EQ(response.status, 200) << response.body;
    if (is_stream) return told_stream(dialect(), exchange->bytes());
    return told_whole(dialect(), response.body);
  }

  // The reply of this cell, which is also that of the other one: the sum of the deltas.
  ToldReply told(const std::string& members) {
    ToldReply mine = told(members, GetParam().is_stream);
    EXPECT_EQ(mine, told(members, !GetParam().is_stream)) << members;
    return mine;
  }

  std::string thinking() const { return R"("enable_thinking":true)"; }
  std::string tools() const {
    return R"("tools":[)" + tool_of(dialect(), "get_weather", kSchema) + "]";
  }
  // Whether the grammar of the last request lets a reply be this text.
  bool allows(const std::string& text) {
    const EngineRequest request = fake_.engine->last_request();
    if (!request.grammar) return false;
    GrammarMatcher matcher(request.grammar);
    for (const Token token : fledgling_tokenizer().encode(text))
      if (!matcher.accept(token)) return false;
    return matcher.may_end();
  }
  // Raw text has no parts, so the rows about parts are not for it.
  bool has_parts() const { return !is_raw(); }
  std::string ended() const {
    return dialect() == Dialect::kResponses  ? "completed"
           : dialect() == Dialect::kMessages ? "end_turn"
                                             : "stop";
  }
  std::string cut() const {
    return dialect() == Dialect::kResponses  ? "incomplete"
           : dialect() == Dialect::kMessages ? "max_tokens"
                                             : "length";
  }
  std::string called() const {
    return dialect() == Dialect::kResponses  ? "completed"
           : dialect() == Dialect::kMessages ? "tool_use"
                                             : "tool_calls";
  }
};

inline std::string cell_name(const testing::TestParamInfo<Cell>& info) {
  return std::string(name_of(info.param.dialect)) + (info.param.is_stream ? "_stream" : "_whole");
}

inline std::vector<Cell> cells() {
  std::vector<Cell> out;
  for (const Dialect dialect :
       {Dialect::kChat, Dialect::kCompletions, Dialect::kResponses, Dialect::kMessages})
    for (const bool is_stream : {false, true}) out.push_back({dialect, is_stream});
  return out;
}

// Those of dialects that have reasoning and calls: raw text, as of Completions, has no parts.
inline std::vector<Cell> cells_of_parts() {
  std::vector<Cell> out = cells();
  std::erase_if(out, [](const Cell& cell) { return cell.dialect == Dialect::kCompletions; });
  return out;
}

inline const std::string kCall =
    "<tool_call>\n<function=get_weather>\n<parameter=city>\nOslo\n</parameter>\n"
    "<parameter=days>\n3\n</parameter>\n</function>\n</tool_call>";
inline const std::string kOtherCall =
    "<tool_call>\n<function=get_weather>\n<parameter=city>\nRio \"de\"\n\n</parameter>\n"
    "</function>\n</tool_call>";

}  // namespace roost
