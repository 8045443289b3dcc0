// Which shards belong to a folder, and that together they are whole.
#include "weights/checkpoint.h"

#include <algorithm>
#include <filesystem>
#include <optional>
#include <set>
#include <system_error>

#include "base/check.h"
#include "base/json.h"
#include "base/limits.h"
#include "weights/names.h"

namespace roost {

namespace {

namespace fs = std::filesystem;

constexpr std::string_view kIndexName = "model.safetensors.index.json";
constexpr std::string_view kSuffix = ".safetensors";
constexpr size_t kNameBytesMax = 4096;     // of a tensor; error texts quote names whole
constexpr size_t kFileNameBytesMax = 255;  // as file systems have it

struct Index {
  std::map<std::string, std::string> file_of;  // tensor → shard
};

// A shard is a plain name in the folder: an index must not reach anywhere else.
bool is_shard_name(const std::string& name) {
  return name.size() <= kFileNameBytesMax && name.ends_with(kSuffix) &&
         name.find_first_of(std::string_view("/\\\0", 3)) == std::string::npos;
}

Error bad_index(const std::string& what) {
  return {Refusal::CheckpointIndex, std::string(kIndexName) + ": " + what};
}

Result<Index> parse_index(const std::string& text) {
  Result<json::Value> value = json::parse(text);
  if (!value) return bad_index(value.error().detail);
  const json::Value* map = value->find("weight_map");
  if (map == nullptr || !map->is_object()) return bad_index("weight_map is not an object");
  if (const json::Value* metadata = value->find("metadata")) {
    // An integer or a float literal; MLX and others disagree on what it counts, so it is not
    // compared.
    const json::Value* total = metadata->find("total_size");
    if (total != nullptr && !(total->is_number() && total->as_double() >= 0)) {
      return bad_index("metadata.total_size is not a size");
    }
  }
  if (map->members().size() > limits::kTensorsMax) return bad_index("too many tensors");
  Index index;
  for (const auto& [tensor, file] : map->members()) {
    if (tensor.size() > kNameBytesMax) return bad_index("a name too long");
    if (!file.is_string() || !is_shard_name(file.as_string())) {
      return bad_index(tensor.substr(0, limits::kErrorValueBytesMax) +
                       ": not the name of a .safetensors file in the folder");
    }
    if (!index.file_of.emplace(tensor, file.as_string()).second)
      return bad_index(tensor + " twice");
  }
  return index;
}

std::vector<std::string> files_in(const std::string& folder) {
  std::vector<std::string> names;
  std::error_code error;
  for (fs::directory_iterator it(folder, error), end; !error && it != end; it.increment(error)) {
    names.push_back(it->path().filename().string());
  }
  std::sort(names.begin(), names.end());
  return names;
}

// "model-00002-of-00005.safetensors" → {"model-", 2, 5}
struct ShardNumber {
  std::string stem;
  int number = 0, count = 0;
};

std::optional<ShardNumber> shard_number(const std::string& name) {
  constexpr std::string_view kPattern = "00000-of-00000.safetensors";
  if (name.size() < kPattern.size()) return std::nullopt;
  const size_t begin = name.size() - kPattern.size();
  int parts[2] = {0, 0};
  for (size_t i = 0; i < kPattern.size(); ++i) {
    const char c = name[begin + i];
    if (kPattern[i] != '0') {
      if (c != kPattern[i]) return std::nullopt;
    } else {
      if (c < '0' || c > '9') return std::nullopt;
      int& part = parts[i < 5 ? 0 : 1];
      part = part * 10 + (c - '0');
    }
  }
  return ShardNumber{name.substr(0, begin), parts[0], parts[1]};
}

// Without an index the shards' own numbers tell whether one is missing.
Result<void> check_numbers(const std::vector<std::string>& shards) {
  for (const std::string& name : shards) {
    const std::optional<ShardNumber> own = shard_number(name);
    if (!own) continue;
    std::set<int> seen;
    for (const std::string& other : shards) {
      const std::optional<ShardNumber> number = shard_number(other);
      if (number && number->stem == own->stem && number->count == own->count)
        seen.insert(number->number);
    }
    if (static_cast<int>(seen.size()) != own->count) {
      return Error{Refusal::CheckpointShard, name + ": " + std::to_string(seen.size()) + " of " +
                                                 std::to_string(own->count) + " shards are there"};
    }
  }
  return {};
}

Result<std::vector<std::string>> shards_without_index(const std::string& folder) {
  std::vector<std::string> shards;
  std::optional<std::string> gguf;
  for (const std::string& name : files_in(folder)) {
    if (name.starts_with("model") && name.ends_with(kSuffix)) shards.push_back(name);
    if (name.ends_with(".gguf")) gguf = name;
  }
  if (shards.empty() && gguf) return Error{Refusal::QuantFormat, *gguf + ": GGUF"};
  if (shards.empty()) return Error{Refusal::FileMissing, folder + ": no model*.safetensors"};
  ROOST_TRY_DO(check_numbers(shards));
  return shards;
}

struct Shards {
  std::vector<std::string> present, missing_vision;
};

// A shard may be absent only when nothing but the vision tower is in it.
Result<Shards> shards_of_index(const Index& index, const std::string& folder) {
  std::map<std::string, std::string> text_tensor_of;  // shard → one tensor that is not vision
  for (const auto& [tensor, file] : index.file_of) {
    std::string& text_tensor = text_tensor_of[file];
    if (text_tensor.empty() && parse_weight_name(tensor).part != ModelPart::kVision)
      text_tensor = tensor;
  }
  Shards shards;
  for (const auto& [file, text_tensor] : text_tensor_of) {
    if (file_exists(folder + "/" + file)) {
      shards.present.push_back(file);
    } else if (text_tensor.empty()) {
      shards.missing_vision.push_back(file);
    } else {
      return Error{Refusal::CheckpointShard, file + ": holds " + text_tensor};
    }
  }
  if (shards.present.empty()) return bad_index("none of its shards is there");
  return shards;
}

Result<void> check_index(const Index& index, const std::map<std::string, TensorEntry>& tensors,
                         const Shards& shards) {
  for (const auto& [name, file] : index.file_of) {
    const auto& missing = shards.missing_vision;
    if (std::find(missing.begin(), missing.end(), file) != missing.end()) continue;
    const auto found = tensors.find(name);
    if (found == tensors.end() || shards.present[static_cast<size_t>(found->second.file)] != file) {
      return bad_index(name + " is not in " + file);
    }
  }
  return {};
}

}  // namespace

Result<Checkpoint> Checkpoint::open(const std::string& folder) {
  if (folder.ends_with(".gguf")) return Error{Refusal::QuantFormat, folder + ": GGUF"};
  const std::string index_path = folder + "/" + std::string(kIndexName);
  std::optional<Index> index;
  Shards shards;
  if (file_exists(index_path)) {
    ROOST_TRY(const std::string text, read_file(index_path, limits::kConfigBytesMax));
    ROOST_TRY(index, parse_index(text));
    ROOST_TRY(shards, shards_of_index(*index, folder));
  } else {
    ROOST_TRY(shards.present, shards_without_index(folder));
  }

  Checkpoint checkpoint;
  for (const std::string& name : shards.present) {
    ROOST_TRY(MappedFile mapping, MappedFile::open(folder + "/" + name));
    ROOST_TRY(std::vector<TensorEntry> entries, parse_safetensors(mapping.bytes(), name));
    for (TensorEntry& entry : entries) {
      entry.file = static_cast<int>(checkpoint.mappings_.size());
      const std::string tensor = entry.name;
      if (checkpoint.tensors_.size() == limits::kTensorsMax) {
        return Error{Refusal::CheckpointHeader, name + ": too many tensors"};
      }
      if (!checkpoint.tensors_.emplace(tensor, std::move(entry)).second) {
        return Error{Refusal::CheckpointDuplicate, name + ": " + tensor};
      }
    }
    checkpoint.mappings_.push_back(std::move(mapping));
  }
  if (index) ROOST_TRY_DO(check_index(*index, checkpoint.tensors_, shards));
  checkpoint.file_names_ = std::move(shards.present);
  checkpoint.missing_vision_shards_ = std::move(shards.missing_vision);
  return checkpoint;
}

Checkpoint Checkpoint::in_memory(MappedFile memory, std::vector<TensorEntry> tensors) {
  Checkpoint checkpoint;
  checkpoint.mappings_.push_back(std::move(memory));
  checkpoint.file_names_.emplace_back("memory");
  for (TensorEntry& tensor : tensors) {
    const std::string name = tensor.name;
    ROOST_CHECK(checkpoint.tensors_.emplace(name, std::move(tensor)).second);
  }
  return checkpoint;
}

const TensorEntry* Checkpoint::find(const std::string& name) const {
  const auto found = tensors_.find(name);
  return found == tensors_.end() ? nullptr : &found->second;
}

}  // namespace roost
