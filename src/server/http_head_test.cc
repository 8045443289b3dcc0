// Header blocks that two readers could understand differently are refused.
#include "server/http_head.h"

#include <gtest/gtest.h>

#include <string>

namespace roost {
namespace {

Result<HttpHead> read(const std::string& lines) {
  return read_http_head(lines + "\r\n");
}

std::string code_for(const std::string& lines) {
  const Result<HttpHead> head = read(lines);
  return head ? "ok" : std::string(code_of(head.error().refusal));
}

const std::string kGet = "GET / HTTP/1.1\r\nHost: localhost\r\n";

TEST(HttpHead, reads_what_the_server_needs) {
  const Result<HttpHead> head = read(
      "POST /x HTTP/1.1\r\nHost: a\r\nContent-Length: 12\r\nExpect: 100-Continue\r\n"
      "Connection: close\r\n");
  ASSERT_TRUE(head);
  EXPECT_EQ(head->content_length, 12u);
  EXPECT_TRUE(head->expects_continue);
  EXPECT_TRUE(head->closes);
  EXPECT_FALSE(head->is_chunked);
  EXPECT_TRUE(read("GET / HTTP/1.0\r\n")->is_http_1_0);
  EXPECT_TRUE(read("POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: Chunked\r\n")->is_chunked);
}

TEST(HttpHead, refuses_whatever_has_two_readings) {
  const struct {
    std::string lines, code;
  } cases[] = {
      {"GET / HTTP/1.1\r\n", "http.bad_request"},
      {kGet + "Host: again\r\n", "http.bad_request"},
      {kGet + " folded\r\n", "http.bad_request"},
      {kGet + "Name : x\r\n", "http.bad_request"},
      {kGet + "NoColon\r\n", "http.bad_request"},
      {kGet + "A: b\rc\r\n", "http.bad_request"},
      {kGet + "A: b\nC: d\r\n", "http.bad_request"},
      {kGet + std::string("A: b\0c\r\n", 8), "http.bad_request"},
      {kGet + "Content-Length: -1\r\n", "http.bad_request"},
      {kGet + "Content-Length: 0x10\r\n", "http.bad_request"},
      {kGet + "Content-Length: 99999999999999999999\r\n", "http.bad_request"},
      {kGet + "Content-Length: 1\r\nContent-Length: 1\r\n", "http.length_conflict"},
      {kGet + "Content-Length: 1\r\nTransfer-Encoding: chunked\r\n", "http.length_conflict"},
      {kGet + "Transfer-Encoding: gzip, chunked\r\n", "http.bad_request"},
      {kGet + "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n", "http.bad_request"},
      {kGet + "Expect: payment\r\n", "http.bad_request"},
      {"GET / HTTP/2.0\r\nHost: a\r\n", "http.bad_request"},
      {"GET  HTTP/1.1\r\nHost: a\r\n", "http.bad_request"},
      {"GET /a b HTTP/1.1\r\nHost: a\r\n", "http.bad_request"},
      {"G\xC3\xA9T / HTTP/1.1\r\nHost: a\r\n", "http.bad_request"},
      {"GET /" + std::string(8192, 'a') + " HTTP/1.1\r\nHost: a\r\n", "http.uri_too_long"},
      {kGet + "A: " + std::string(16384, 'a') + "\r\n", "http.header_too_large"},
      {"", "http.bad_request"},
  };
  for (const auto& c : cases) EXPECT_EQ(code_for(c.lines), c.code) << c.lines.substr(0, 80);
}

TEST(HttpHead, a_hundred_lines_are_taken_and_one_more_is_not) {
  std::string lines = kGet;
  for (int i = 0; i < 99; ++i) lines += "A" + std::to_string(i) + ": b\r\n";
  EXPECT_EQ(code_for(lines), "ok");
  EXPECT_EQ(code_for(lines + "B: c\r\n"), "http.header_too_large");
}

TEST(HttpHead, the_end_is_found_across_every_cut) {
  const std::string bytes = "GET / HTTP/1.1\r\nHost: a\r\n\r\nbody";
  for (size_t from = 0; from < bytes.size() - 5; ++from)
    EXPECT_EQ(find_head_end(bytes, from), bytes.size() - 4) << from;
  EXPECT_EQ(find_head_end("GET / HTTP/1.1\r\n\r", 0), std::nullopt);
}

}  // namespace
}  // namespace roost
