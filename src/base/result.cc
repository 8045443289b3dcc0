#include "base/result.h"

#include <iterator>

namespace roost {
namespace {

struct Row {
  std::string_view code;
  int http_status;
  std::string_view sentence;
};

constexpr Row kRows[] = {
#define ROOST_REFUSAL(name, code, status, sentence) {code, status, sentence},
#include "base/refusals.def"
#undef ROOST_REFUSAL
};

const Row& row_of(Refusal refusal) {
  const auto i = static_cast<size_t>(refusal);
  ROOST_CHECK(i < std::size(kRows));
  return kRows[i];
}

}  // namespace

std::string_view code_of(Refusal refusal) {
  return row_of(refusal).code;
}
int http_status_of(Refusal refusal) {
  return row_of(refusal).http_status;
}
std::string_view sentence_of(Refusal refusal) {
  return row_of(refusal).sentence;
}

std::string to_string(const Error& error) {
  std::string text(code_of(error.refusal));
  text += ": ";
  text += sentence_of(error.refusal);
  if (!error.detail.empty()) text += " (" + error.detail + ")";
  return text;
}

}  // namespace roost
