// Fledgling's text side over a fake engine: what the server's tests serve.
#pragma once

#include <memory>
#include <string>
#include <utility>

#include "base/check.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/json.h"
#include "base/limits.h"
#include "server/served_model.h"
#include "tests/sim/fake_engine.h"

namespace roost {

inline std::string fledgling_file(const std::string& name) {
  Result<std::string> text = read_file(std::string(ROOST_SOURCE_DIR) + "/models/fledgling/" + name,
                                       limits::kTokenizerBytesMax);
  ROOST_CHECK(bool(text));
  return std::move(text).value();
}

inline const Tokenizer& fledgling_tokenizer() {
  static const Tokenizer kTokenizer = [] {
    Result<json::Value> file = json::parse(fledgling_file("tokenizer.json"));
    Result<json::Value> config = json::parse(fledgling_file("tokenizer_config.json"));
    ROOST_CHECK(file && config);
    Result<Tokenizer> tokenizer = Tokenizer::create(*file, *config);
    ROOST_CHECK(bool(tokenizer));
    return *tokenizer;
  }();
  return kTokenizer;
}

// The model without an engine. `template_source` empty: Fledgling's own.
inline std::shared_ptr<ServedModel> fledgling_text(std::string template_source = "") {
  if (template_source.empty()) template_source = fledgling_file("chat_template.jinja");
  auto model = std::make_shared<ServedModel>();
  model->ids = {"fledgling"};
  model->digest = "0123456789abcdef";
  model->tokenizer = fledgling_tokenizer();
  Result<ChatTemplate> parsed = ChatTemplate::parse(template_source);
  ROOST_CHECK(bool(parsed));
  model->chat_template = *parsed;
  derive_rules(*model, template_source);
  model->end_tokens = {*model->tokenizer.find_added("<|im_end|>")};
  model->defaults.temperature = 0.7;
  model->context_train = 262144;
  model->created = 1'700'000'000;
  return model;
}

// A script that says the same text in every reply.
inline FakeEngineOptions says(const std::string& text) {
  FakeEngineOptions options;
  options.script = [ids = fledgling_tokenizer().encode(text)](const EngineRequest&) { return ids; };
  options.end_token = *fledgling_tokenizer().find_added("<|im_end|>");
  return options;
}

struct FakeModel {
  std::shared_ptr<ServedModel> model;
  FakeEngine* engine = nullptr;
};

inline FakeModel fledgling_with(FakeEngineOptions options) {
  FakeModel out;
  out.model = fledgling_text();
  auto engine = std::make_shared<FakeEngine>(std::move(options), system_clock());
  out.engine = engine.get();
  out.model->engine = std::move(engine);
  return out;
}

}  // namespace roost
