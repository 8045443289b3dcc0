// Error bodies (docs/SERVER.md, answers common to all).
#include "server/error_body.h"

#include "base/json.h"

namespace roost {

std::string message_of(const Error& error) {
  std::string out(sentence_of(error.refusal));
  if (!error.detail.empty()) out.append(": ").append(error.detail);
  return out;
}

std::string_view openai_code_of(Refusal refusal) {
  switch (refusal) {
    case Refusal::UnsupportedField:
      return "unsupported_parameter";
    case Refusal::RequestTooLong:
      return "context_length_exceeded";
    case Refusal::UnknownModel:
      return "model_not_found";
    case Refusal::QueueFull:
    case Refusal::RateLimited:
      return "rate_limit_exceeded";
    case Refusal::AuthMissing:
    case Refusal::AuthInvalid:
      return "invalid_api_key";
    default:
      return code_of(refusal);
  }
}

std::string_view openai_type_of(int status) {
  switch (status) {
    case 401:
      return "authentication_error";
    case 403:
      return "permission_error";
    case 429:
      return "rate_limit_error";
    default:
      return status >= 500 ? "server_error" : "invalid_request_error";
  }
}

std::string openai_error_body(const Error& error, std::string_view param) {
  const int status = http_status_of(error.refusal);
  json::Value body = json::Value::object();
  body.set("message", json::Value::string(message_of(error)));
  body.set("type", json::Value::string(std::string(openai_type_of(status))));
  body.set("param", param.empty() ? json::Value() : json::Value::string(std::string(param)));
  body.set("code", json::Value::string(std::string(openai_code_of(error.refusal))));
  body.set("refusal", json::Value::string(std::string(code_of(error.refusal))));
  json::Value out = json::Value::object();
  out.set("error", std::move(body));
  return json::write(out);
}

std::string_view anthropic_type_of(int status) {
  switch (status) {
    case 401:
      return "authentication_error";
    case 403:
      return "permission_error";
    case 404:
      return "not_found_error";
    case 413:
      return "request_too_large";
    case 429:
      return "rate_limit_error";
    case 503:
      return "overloaded_error";
    case 504:
      return "timeout_error";
    default:
      return status >= 500 ? "api_error" : "invalid_request_error";
  }
}

std::string anthropic_error_body(const Error& error, std::string_view param,
                                 std::string_view request_id) {
  const int status = http_status_of(error.refusal);
  json::Value body = json::Value::object();
  body.set("type", json::Value::string(std::string(anthropic_type_of(status))));
  body.set("message", json::Value::string(message_of(error)));
  body.set("param", param.empty() ? json::Value() : json::Value::string(std::string(param)));
  body.set("refusal", json::Value::string(std::string(code_of(error.refusal))));
  json::Value out = json::Value::object();
  out.set("type", json::Value::string("error"));
  out.set("error", std::move(body));
  out.set("request_id", json::Value::string(std::string(request_id)));
  return json::write(out);
}

}  // namespace roost
