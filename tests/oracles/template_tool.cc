// Renders templates for template_oracle.py: reads one JSON object a line from standard input,
// {"template": text, "data": variables, "time": seconds}, and answers each with one line:
// {"text": …, "variables": […]} or {"code": …, "detail": …}.
#include <iostream>
#include <string>

#include "base/json.h"
#include "base/result.h"
#include "text/chat_template.h"

namespace roost {
namespace {

Result<json::Value> answer(const std::string& line) {
  ROOST_TRY(const json::Value request, json::parse(line));
  const json::Value* source = request.find("template");
  const json::Value* data = request.find("data");
  const json::Value* time = request.find("time");
  if (source == nullptr || data == nullptr || time == nullptr)
    return Error{Refusal::MissingField, "template, data, time"};
  ROOST_TRY(const ChatTemplate chat_template, ChatTemplate::parse(source->as_string()));
  ROOST_TRY(std::string text, chat_template.render(*data, time->as_int64().value_or(0)));
  json::Value variables = json::Value::array();
  for (const std::string& name : chat_template.variables())
    variables.push(json::Value::string(name));
  return json::Value::object(
      {{"text", json::Value::string(std::move(text))}, {"variables", std::move(variables)}});
}

}  // namespace
}  // namespace roost

int main() {
  std::string line;
  while (std::getline(std::cin, line)) {
    const roost::Result<roost::json::Value> result = roost::answer(line);
    if (result) {
      std::cout << roost::json::write(*result) << std::endl;
      continue;
    }
    const auto code = roost::json::Value::string(std::string(code_of(result.error().refusal)));
    const auto detail = roost::json::Value::string(result.error().detail);
    std::cout << roost::json::write(
                     roost::json::Value::object({{"code", code}, {"detail", detail}}))
              << std::endl;
  }
}
