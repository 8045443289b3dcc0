// roost bench MODEL: decode and prompt speed as shares of what the machine can do.
#pragma once

#include <cstdint>
#include <string>

#include "model/qwen35.h"

namespace roost {

// Behind a context there is room for so many measured rows.
inline constexpr int64_t kMeasuredRowsMax = 1024;

struct BenchOptions {
  std::string model;  // a folder, or synth:SHAPE
  std::string device = "cpu";
  int64_t n_layers = 0;  // of a synthetic model; 0: the shape's own
  int64_t prompt_rows = 2048;
  int64_t chunk_rows = 512;
  int64_t decode_rows = 1;  // rows of one decode step, each of its own sequence
  int64_t context = 0;      // tokens before the measured rows; 0: the first rows of a sequence
  int n_threads = 0;        // 0: all usable CPUs
  int repetitions = 9;      // medians are reported
  bool json = false;
  std::string part = "rows";  // of the model; or "engine": what the engine adds to its steps
  KvFormat kv = KvFormat::kActivation;
};

// Prints a table, or JSON; returns the process's exit status.
int run_bench(const BenchOptions& options);

}  // namespace roost
