#include "server/response_store.h"

#include <gtest/gtest.h>

namespace roost {
namespace {

StoredResponse reply(const std::string& text, const std::string& owner) {
  return {json::Value::string(text), {json::Value::string("in")}, owner};
}

TEST(ResponseStore, gives_a_reply_to_its_owner_alone) {
  ResponseStore store(10, 1000);
  store.put("a", reply("x", "ann"));
  EXPECT_TRUE(store.find("a", "ann"));
  EXPECT_FALSE(store.find("a", "bob"));
  EXPECT_FALSE(store.remove("a", "bob"));
  EXPECT_TRUE(store.remove("a", "ann"));
  EXPECT_FALSE(store.find("a", "ann"));
}

TEST(ResponseStore, the_least_recently_used_goes_first) {
  ResponseStore store(2, 1000);
  store.put("a", reply("x", ""));
  store.put("b", reply("x", ""));
  EXPECT_TRUE(store.find("a", ""));
  store.put("c", reply("x", ""));
  EXPECT_TRUE(store.find("a", ""));
  EXPECT_FALSE(store.find("b", ""));
}

TEST(ResponseStore, finds_items_of_its_owners_replies_by_their_own_ids) {
  ResponseStore store(10, 1000);
  const auto value = [](const char* text) { return json::parse(text).value(); };
  store.put("a", {value(R"({"output":[{"id":"out","text":"x"}]})"),
                  {value(R"({"id":"in"})"), json::Value::string("text")},
                  "ann"});
  store.put("b", {value("{}"), {value(R"({"type":"item_reference","id":"out"})")}, "ann"});
  for (const char* id : {"out", "in"}) EXPECT_TRUE(store.find_item(id, "ann")) << id;
  EXPECT_NE(store.of("ann").find_item("out")->find("text"), nullptr) << "no reference to it";
  EXPECT_FALSE(store.find_item("out", "bob"));
  EXPECT_FALSE(store.find_item("other", "ann"));
}

TEST(ResponseStore, holds_no_more_bytes_than_it_may) {
  ResponseStore store(10, 40);
  store.put("large", reply(std::string(100, 'x'), ""));
  EXPECT_FALSE(store.find("large", ""));
  store.put("a", reply(std::string(20, 'x'), ""));
  store.put("b", reply(std::string(20, 'x'), ""));
  EXPECT_FALSE(store.find("a", ""));
  EXPECT_TRUE(store.find("b", ""));
  ResponseStore none(0, 1000);
  none.put("a", reply("x", ""));
  EXPECT_FALSE(none.find("a", ""));
}

}  // namespace
}  // namespace roost
