// What is written down of requests when an operator asked for it, and that nothing is otherwise.
#include "server/records.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>
#include <map>

#include "base/file.h"
#include "tests/sim/service_fixture.h"

namespace roost {
namespace {

class RecordsTest : public ServiceFixture {
 protected:
  RecordsTest() : ServiceFixture(options()) {}
  ~RecordsTest() override {
    for (const char* name : {"trace", "content"}) std::filesystem::remove(path(name));
  }

  static std::string path(const std::string& name) {
    const testing::TestInfo& test = *testing::UnitTest::GetInstance()->current_test_info();
    return testing::TempDir() + test.name() + "." + name;
  }
  static ServiceOptions options() {
    ServiceOptions out;
    out.trace = LineFile::begin(path("trace")).value();
    out.trace->write("[");
    out.content_log = LineFile::append_to(path("content")).value();
    return out;
  }
  static std::string text_of(const std::string& name) {
    return read_file(path(name), size_t{1} << 20).value();
  }
};

TEST_F(RecordsTest, the_trace_has_a_span_for_each_part_of_a_request) {
  serve(says("one two"));
  post(
      "/v1/chat/completions",
      R"({"messages":[{"role":"user","content":"Hi"}],"structured_outputs":{"choice":["one two"]}})")
      ->wait();
  const std::string text = text_of("trace");
  ASSERT_TRUE(text.ends_with(",\n"));
  const Result<json::Value> events = json::parse(text.substr(0, text.size() - 2) + "]");
  ASSERT_TRUE(events) << text;
  std::map<std::string, int> spans;
  for (const json::Value& event : events->items()) {
    ++spans[event.find("name")->as_string()];
    EXPECT_EQ(event.find("ph")->as_string(), "X");
    EXPECT_GT(event.find("dur")->as_double(), 0);
    EXPECT_EQ(event.find("args")->find("trace_id")->as_string().size(), 32u);
    EXPECT_EQ(*event.find("tid"), *events->items()[0].find("tid"));
  }
  for (const char* name : {"parse", "grammar", "queue", "decode", "detokenize"})
    EXPECT_EQ(spans[name], 1) << name << " in " << text;
  EXPECT_GE(spans["prefill"], 1);
}

TEST_F(RecordsTest, content_is_written_for_its_owner_alone) {
  serve(says("hm\n</think>\n\nA secret."));
  post("/v1/chat/completions",
       R"({"messages":[{"role":"user","content":"Whisper"}],"enable_thinking":true})")
      ->wait();
  const std::string text = text_of("content");
  const size_t end = text.find('\n');
  const Result<json::Value> asked = json::parse(text.substr(0, end));
  const Result<json::Value> said = json::parse(text.substr(end + 1));
  ASSERT_TRUE(asked && said) << text;
  EXPECT_EQ(*asked->find("request_id"), *said->find("request_id"));
  EXPECT_NE(json::write(*asked->find("body")).find("Whisper"), std::string::npos);
  const json::Value& choice = said->find("choices")->items()[0];
  EXPECT_EQ(choice.find("content")->as_string(), "A secret.");
  EXPECT_EQ(choice.find("reasoning")->as_string(), "hm");
  struct stat status;
  ASSERT_EQ(::stat(path("content").c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 0777, 0600u);
  EXPECT_TRUE(answer_of(get("/props")).find("features")->find("log_content")->as_bool());
}

TEST(Records, a_body_that_is_no_json_is_a_text) {
  EXPECT_EQ(request_record("r", "/v1/messages", "{"),
            R"({"request_id":"r","path":"/v1/messages","body":"{"})");
}

TEST(Records, parts_that_never_began_have_no_span) {
  EXPECT_EQ(trace_lines(1, "r", "t", {{"queue", 0, 5}, {"decode", 7, 7}}), "");
}

TEST(Records, a_file_that_cannot_be_written_is_refused_by_name) {
  const auto file = LineFile::append_to("/nonexistent/folder/file");
  ASSERT_FALSE(file);
  EXPECT_EQ(file.error().refusal, Refusal::FileWrite);
}

}  // namespace
}  // namespace roost
