// Runs a drafter on taps from a file with the exact references, for drafter_oracle.py:
//   drafter_tool TARGET DRAFTER TAPS CONTEXT_BEGIN ANCHOR ROWS TEMPERATURE SEED
// TAPS: f32 [T, taps·h]. Writes one JSON object: context, hidden, ids, scores, tokens.
#include <cstdio>
#include <cstdlib>
#include <string>

#include "model/drafter.h"
#include "tests/model_run.h"

namespace roost {
namespace {

void print(const char* name, const Tensor& tensor) {
  std::printf("\"%s\": [", name);
  for (int64_t i = 0; i < tensor.n_elements(); ++i)
    std::printf("%s%.9g", i == 0 ? "" : ",", tensor.get(i));
  std::printf("],\n");
}

int run(char** arguments) {
  const auto target = testing::load_model(arguments[1]);
  const auto weights = load_drafter(arguments[2], *target);
  if (!weights) {
    std::fprintf(stderr, "%s\n", to_string(weights.error()).c_str());
    return 1;
  }
  const DrafterConfig& c = weights->config;
  const auto file = MappedFile::open(arguments[3]).value();
  const auto n_rows =
      static_cast<int32_t>(static_cast<int64_t>(file.bytes().size()) / 4 / c.tap_width());
  const auto ops = make_reference_ops({.rounding = false});
  Drafter drafter(*weights, *target, *ops, n_rows, 1, c.vocabulary);

  const Buffer memory(static_cast<size_t>(n_rows * c.tap_width()) * sizeof(double));
  const Tensor taps = memory.tensor(DType::kF64, {n_rows, c.tap_width()});
  for (int64_t i = 0; i < taps.n_elements(); ++i) {
    float value;
    std::memcpy(&value, file.bytes().data() + 4 * i, sizeof(value));
    taps.set(i, static_cast<double>(value));
  }
  const int32_t n_pages = (n_rows + kPageTokens - 1) / kPageTokens;
  const DrafterState state = DrafterState::create(c, DType::kF64, n_pages);
  std::vector<int32_t> pages(static_cast<size_t>(n_pages));
  for (int32_t i = 0; i < n_pages; ++i) pages[static_cast<size_t>(i)] = n_pages - 1 - i;

  std::printf("{\n");
  drafter.set_tap([](std::string_view place, const Tensor& tensor) {
    if (place != "logits") print(std::string(place).c_str(), tensor);
  });
  const RowSpan span{0, n_rows, 0, pages.data()};
  drafter.absorb(taps, {&span, 1}, state);
  const DraftBlock block{.anchor = std::atoi(arguments[5]),
                         .n_rows = std::atoi(arguments[6]),
                         .position = n_rows,
                         .context_begin = std::atoi(arguments[4]),
                         .page_table = pages.data(),
                         .params = {.temperature = std::atof(arguments[7]),
                                    .seed = std::strtoull(arguments[8], nullptr, 10)}};
  std::vector<int32_t> tokens(static_cast<size_t>(block.n_rows) - 1);
  drafter.draft({&block, 1}, state, tokens);
  std::printf("\"tokens\": [");
  for (size_t i = 0; i < tokens.size(); ++i) std::printf("%s%d", i == 0 ? "" : ",", tokens[i]);
  std::printf("]\n}\n");
  return 0;
}

}  // namespace
}  // namespace roost

int main(int n_arguments, char** arguments) {
  return n_arguments == 9 ? roost::run(arguments) : 2;
}
