// The files of a checkpoint folder, as one set of tensors.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "base/file.h"
#include "base/result.h"
#include "weights/safetensors.h"

namespace roost {

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
