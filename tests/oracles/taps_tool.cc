// For training a drafter (tools/train_drafter.py): what a target's layers leave behind over token
// sequences, on the CPU backend, and the matrices that a drafter shares with its target.
//
//   taps_tool MODEL IDS OUT LAYER…
//
// IDS: little-endian i32: a count, then that many token ids, repeated. OUT/taps: for each row of
// each sequence the residual stream behind every LAYER, [rows, layers·h]; OUT/embedding, OUT/head:
// [V, h]; all bf16.
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "tensor/dtype.h"
#include "tests/model_run.h"

namespace roost {
namespace {

void write(std::FILE* out, const std::vector<uint16_t>& values) {
  ROOST_CHECK(std::fwrite(values.data(), sizeof(uint16_t), values.size(), out) == values.size());
}

void write_matrix(const std::string& path, const QuantMatrix& matrix) {
  std::FILE* out = std::fopen(path.c_str(), "wb");
  ROOST_CHECK(out != nullptr);
  std::vector<uint16_t> row(static_cast<size_t>(matrix.n_in));
  for (int64_t r = 0; r < matrix.n_out; ++r) {
    for (int64_t c = 0; c < matrix.n_in; ++c)
      row[static_cast<size_t>(c)] = bf16_from_f32(static_cast<float>(matrix.decode(r, c)));
    write(out, row);
  }
  ROOST_CHECK(std::fclose(out) == 0);
}

int run(const std::string& model, const char* ids_path, const std::string& folder,
        const std::vector<int64_t>& layers) {
  const auto weights = testing::load_model(model);
  for (const int64_t layer : layers) ROOST_CHECK(layer >= 0 && layer < weights->config.n_layers);
  write_matrix(folder + "/embedding", weights->embedding);
  write_matrix(folder + "/head", weights->head);
  std::FILE* in = std::fopen(ids_path, "rb");
  std::FILE* out = std::fopen((folder + "/taps").c_str(), "wb");
  ROOST_CHECK(in != nullptr && out != nullptr);
  constexpr int64_t kRowsMax = 64;
  ThreadPool pool(n_usable_cpus());
  const auto ops = make_cpu_ops(pool, Qwen35::ops_limits(weights->config, kRowsMax));
  const auto h = static_cast<size_t>(weights->config.hidden), width = layers.size() * h;
  int32_t n = 0;
  while (std::fread(&n, sizeof n, 1, in) == 1) {
    std::vector<int32_t> ids(static_cast<size_t>(n));
    ROOST_CHECK(std::fread(ids.data(), sizeof(int32_t), ids.size(), in) == ids.size());
    testing::ModelRun model_run(*weights, *ops, 1, n, kRowsMax, 1);
    std::vector<uint16_t> taps;  // of a chunk
    model_run.model().set_tap([&](std::string_view place, int64_t layer, const Tensor& x) {
      if (place != "residual") return;
      taps.resize(static_cast<size_t>(x.dim(0)) * width);
      for (size_t i = 0; i < layers.size(); ++i) {
        if (layers[i] + 1 != layer) continue;  // the stream in front of the next one
        for (size_t t = 0; t < static_cast<size_t>(x.dim(0)); ++t)
          std::memcpy(taps.data() + t * width + i * h, x.at(static_cast<int64_t>(t)).data,
                      h * sizeof(uint16_t));
      }
      if (layer == weights->config.n_layers) write(out, taps);
    });
    testing::run_in_chunks(model_run, 0, ids, kRowsMax);
  }
  std::fclose(in);
  return std::fclose(out) == 0 ? 0 : 1;
}

}  // namespace
}  // namespace roost

int main(int argc, char** argv) {
  if (argc < 5) return std::fprintf(stderr, "usage: taps_tool MODEL IDS OUT LAYER...\n"), 2;
  std::vector<int64_t> layers;
  for (int i = 4; i < argc; ++i) layers.push_back(std::atoll(argv[i]));
  return roost::run(argv[1], argv[2], argv[3], layers);
}
