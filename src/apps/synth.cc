// `roost synth`: finds Fledgling's text files and writes the checkpoint.
#include "apps/synth.h"

#include <fmt/format.h>

#include <chrono>
#include <cstdio>
#include <filesystem>
#include <system_error>

#include "apps/complain.h"
#include "base/file.h"

namespace roost {
namespace {

// The bundled model lies in models/fledgling of the source tree, some folders above the program, or
// of the working folder.
std::string find_fledgling() {
  namespace fs = std::filesystem;
  const fs::path bundled = "models/fledgling";
  std::error_code error;
  fs::path folder = fs::read_symlink("/proc/self/exe", error).parent_path();
  while (!error && !folder.empty()) {
    if (file_exists((folder / bundled / "tokenizer.json").string()))
      return (folder / bundled).string();
    if (folder == folder.root_path()) break;
    folder = folder.parent_path();
  }
  return bundled.string();
}

}  // namespace

int run_synth(const SynthOptions& options) {
  const std::string fledgling =
      options.fledgling_folder.empty() ? find_fledgling() : options.fledgling_folder;
  const auto begin = std::chrono::steady_clock::now();
  const Result<void> written =
      write_synthetic_checkpoint(options.synthetic, fledgling, options.folder);
  if (!written) return complain(written.error());
  uint64_t n_bytes = 0;
  const Result<std::vector<SyntheticTensor>> tensors = synthetic_tensors(options.synthetic);
  for (const SyntheticTensor& tensor : *tensors) n_bytes += tensor.n_bytes();
  const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - begin;
  fmt::print("{}: {} tensors, {} bytes in {:.1f} s\n", options.folder, tensors->size(), n_bytes,
             elapsed.count());
  return 0;
}

}  // namespace roost
