// For comparisons with other programs: the logits of every row of token sequences, from the CPU
// backend.
//
//   logits_tool MODEL IDS OUT
//
// IDS: little-endian i32: a count, then that many token ids, repeated. OUT: for each sequence,
// [ids, V] f32 rows.
#include <cstdio>
#include <vector>

#include "tests/model_run.h"

int main(int argc, char** argv) {
  using namespace roost;
  if (argc != 4) return std::fprintf(stderr, "usage: logits_tool MODEL IDS OUT\n"), 2;
  const auto weights = testing::load_model(argv[1]);
  std::FILE* in = std::fopen(argv[2], "rb");
  std::FILE* out = std::fopen(argv[3], "wb");
  if (in == nullptr || out == nullptr)
    return std::fprintf(stderr, "logits_tool: cannot open a file\n"), 1;
  constexpr int64_t kRowsMax = 256;
  ThreadPool pool(n_usable_cpus());
  const auto ops = make_cpu_ops(pool, Qwen35::ops_limits(weights->config, kRowsMax));
  int32_t n = 0;
  while (std::fread(&n, sizeof n, 1, in) == 1) {
    std::vector<int32_t> ids(static_cast<size_t>(n));
    if (std::fread(ids.data(), sizeof(int32_t), ids.size(), in) != ids.size()) return 1;
    testing::ModelRun run(*weights, *ops, 1, n, kRowsMax, 1);
    testing::run_in_chunks(run, 0, ids, kRowsMax);
    if (std::fwrite(run.logits(0).data(), sizeof(float), run.logits(0).size(), out) !=
        run.logits(0).size())
      return 1;
  }
  std::fclose(in);
  return std::fclose(out) == 0 ? 0 : 1;
}
