// An expected "no" has a code from refusals.def and a detail with the numbers; Result carries
// either a value or such a no.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <variant>

#include "base/check.h"

namespace roost {

enum class Refusal {
#define ROOST_REFUSAL(name, code, status, sentence) name,
#include "base/refusals.def"
#undef ROOST_REFUSAL
};

std::string_view code_of(Refusal refusal);      // stable: "request.too_long"
int http_status_of(Refusal refusal);            // 400
std::string_view sentence_of(Refusal refusal);  // for a person

struct Error {
  Refusal refusal;
  std::string detail;  // the numbers, names and places: "layers.3.mlp.gate: have 2x3, want 3x2"
};

// "checkpoint.tensor_shape: a weight in the files has … (layers.3.mlp.gate: have 2x3, want 3x2)"
std::string to_string(const Error& error);

template <class T>
class [[nodiscard]] Result {
 public:
  // Both implicit by design: `return value;` and `return Error{…};`.
  Result(T value) : state_(std::in_place_index<0>, std::move(value)) {}      // NOLINT
  Result(Error error) : state_(std::in_place_index<1>, std::move(error)) {}  // NOLINT

  explicit operator bool() const { return state_.index() == 0; }
  const T& operator*() const& { return value(); }
  T& operator*() & { return value(); }
  const T* operator->() const { return &value(); }
  T* operator->() { return &value(); }

  const T& value() const& { return check_value(), std::get<0>(state_); }
  T& value() & { return check_value(), std::get<0>(state_); }
  T value() && {  // by value: outlives a temporary Result
    return check_value(), std::get<0>(std::move(state_));
  }
  const Error& error() const& { return std::get<1>(state_); }
  Error&& error() && { return std::get<1>(std::move(state_)); }

 private:
  void check_value() const { ROOST_CHECK(state_.index() == 0); }
  std::variant<T, Error> state_;
};

template <>
class [[nodiscard]] Result<void> {
 public:
  Result() = default;
  Result(Error error) : error_(std::move(error)), is_ok_(false) {}  // NOLINT

  explicit operator bool() const { return is_ok_; }
  const Error& error() const& { return error_; }
  Error&& error() && { return std::move(error_); }

 private:
  Error error_{};
  bool is_ok_ = true;
};

}  // namespace roost

#define ROOST_CAT_(a, b) a##b
#define ROOST_CAT(a, b) ROOST_CAT_(a, b)

// ROOST_TRY(Type name, expression): the value, or return the refusal to the caller.
#define ROOST_TRY(declaration, ...) \
  ROOST_TRY_(ROOST_CAT(result_, __COUNTER__), declaration, __VA_ARGS__)
#define ROOST_TRY_(result, declaration, ...)     \
  auto result = (__VA_ARGS__);                   \
  if (!result) return std::move(result).error(); \
  declaration = std::move(result).value()

// ROOST_TRY_DO(expression): the same for Result<void>, or when the value is not wanted.
#define ROOST_TRY_DO(...)                                      \
  do {                                                         \
    auto result_of_do = (__VA_ARGS__);                         \
    if (!result_of_do) return std::move(result_of_do).error(); \
  } while (false)
