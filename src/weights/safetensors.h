// Safetensors files, as somebody else wrote them: every number in a header is checked.
#pragma once

#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/file.h"
#include "base/result.h"
#include "tensor/dtype.h"
#include "tensor/shape.h"

namespace roost {

struct TensorEntry {
  std::string name;
  DType dtype = DType::kBF16;
  Shape shape;
  std::span<const std::byte> bytes;  // any alignment; borrowed from the checkpoint
  int file = 0;                      // index into Checkpoint::files()
};

// The tensors of one file. Names refuse duplicates, data ranges must tile the file exactly.
Result<std::vector<TensorEntry>> parse_safetensors(std::span<const std::byte> file,
                                                   const std::string& file_name);

// All tensors of a folder, mapped. With an index, the shards that it names; without, every
// model*.safetensors. Shards that hold vision tensors only may be missing (missing_vision_shards).
class Checkpoint {
 public:
  static Result<Checkpoint> open(const std::string& folder);
  // Tensors of different names over memory that the checkpoint then owns.
  static Checkpoint in_memory(MappedFile memory, std::vector<TensorEntry> tensors);

  const TensorEntry* find(const std::string& name) const;  // null if there is none
  const std::map<std::string, TensorEntry>& tensors() const { return tensors_; }
  const std::vector<std::string>& files() const { return file_names_; }
  // Reads the files into memory (MappedFile::make_resident); the tensors stay where they are.
  Result<void> make_resident() const {
    for (const MappedFile& file : mappings_) ROOST_TRY_DO(file.make_resident());
    return {};
  }
  const std::vector<std::string>& missing_vision_shards() const { return missing_vision_shards_; }

 private:
  std::vector<MappedFile> mappings_;
  std::vector<std::string> file_names_;
  std::map<std::string, TensorEntry> tensors_;
  std::vector<std::string> missing_vision_shards_;
};

}  // namespace roost
