// The model list (docs/SERVER.md, model list).
#include "server/model_list.h"

#include <fmt/format.h>

#include <chrono>

namespace roost {

std::string rfc3339(int64_t unix_seconds) {
  const std::chrono::sys_seconds time{std::chrono::seconds(unix_seconds)};
  const auto day = std::chrono::floor<std::chrono::days>(time);
  const std::chrono::year_month_day date(day);
  const std::chrono::hh_mm_ss clock(time - day);
  return fmt::format("{:04}-{:02}-{:02}T{:02}:{:02}:{:02}Z", static_cast<int>(date.year()),
                     static_cast<unsigned>(date.month()), static_cast<unsigned>(date.day()),
                     clock.hours().count(), clock.minutes().count(), clock.seconds().count());
}

json::Value model_entry(const ServedModel& model, const std::string& id) {
  const json::Value context = json::Value::integer(model.engine->context_max());
  json::Value meta = json::Value::object();
  meta.set("n_ctx", context);
  meta.set("n_ctx_train", json::Value::integer(model.context_train));
  meta.set("n_vocab", json::Value::integer(model.rules.n_tokens));
  meta.set("n_params", json::Value::integer(model.n_parameters));
  meta.set("size", json::Value::integer(model.n_bytes));

  json::Value capabilities = json::Value::object();
  const auto can = [&](const char* what, bool is_so) {
    capabilities.set(what, json::Value::boolean(is_so));
  };
  can("tools", true);
  can("reasoning", model.rules.template_reads("enable_thinking"));
  can("structured_output", true);
  can("logprobs", true);
  can("vision", false);
  can("drafter", model.drafter.has_value());

  json::Value out = json::Value::object();
  out.set("id", json::Value::string(id));
  out.set("object", json::Value::string("model"));
  out.set("type", json::Value::string("model"));
  out.set("display_name", json::Value::string(id));
  out.set("created", json::Value::integer(model.created));
  out.set("created_at", json::Value::string(rfc3339(model.created)));
  out.set("owned_by", json::Value::string("roost"));
  out.set("root", json::Value::string(model.ids.front()));
  for (const char* name : {"max_model_len", "context_length", "context_window", "max_input_tokens",
                           "max_tokens", "max_output_tokens"})
    out.set(name, context);
  out.set("meta", std::move(meta));
  out.set("input_modalities", json::Value::array({json::Value::string("text")}));
  out.set("capabilities", std::move(capabilities));
  return out;
}

json::Value model_list(const ServedModel& model) {
  json::Value data = json::Value::array();
  for (const std::string& id : model.ids) data.push(model_entry(model, id));
  json::Value out = json::Value::object();
  out.set("object", json::Value::string("list"));
  out.set("data", std::move(data));
  out.set("has_more", json::Value::boolean(false));
  out.set("first_id", json::Value::string(model.ids.front()));
  out.set("last_id", json::Value::string(model.ids.back()));
  return out;
}

}  // namespace roost
