// Writes a synthetic checkpoint: shards as MLX cuts and orders them, made and written by all cores.
#include "weights/synthetic.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <memory>
#include <mutex>
#include <optional>
#include <system_error>
#include <thread>

#include "weights/synthetic_text.h"

namespace roost {

namespace {

constexpr uint64_t kShardBytesMax = uint64_t{5} << 30;  // where MLX starts another file
constexpr uint64_t kChunkBytes = uint64_t{4} << 20;     // of one thread at a time
constexpr unsigned kThreadsMax = 16;

Error cannot_write(const std::string& path) {
  return {Refusal::FileWrite, path + ": " + std::strerror(errno)};
}

// A file to be written at any place from several threads.
class OutFile {
 public:
  static Result<OutFile> create(const std::string& path) {
    OutFile file;
    file.path_ = path;
    const int fd = ::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    if (fd < 0) return cannot_write(path);
    file.fd_.reset(new int(fd));
    return file;
  }
  Result<void> write(std::span<const std::byte> bytes, uint64_t at) const {
    while (!bytes.empty()) {
      const ssize_t n = ::pwrite(*fd_, bytes.data(), bytes.size(), static_cast<off_t>(at));
      if (n < 0 && errno == EINTR) continue;
      if (n <= 0) return cannot_write(path_);
      bytes = bytes.subspan(static_cast<size_t>(n));
      at += static_cast<uint64_t>(n);
    }
    return {};
  }
  Result<void> write(std::string_view text, uint64_t at) const {
    return write(std::as_bytes(std::span(text.data(), text.size())), at);
  }
  Result<void> close() {
    const int fd = *fd_;
    delete fd_.release();
    return ::close(fd) == 0 ? Result<void>() : cannot_write(path_);
  }

 private:
  struct Close {
    void operator()(const int* fd) const {
      ::close(*fd);
      delete fd;
    }
  };
  std::unique_ptr<int, Close> fd_;
  std::string path_;
};

Result<void> write_text(const std::string& path, const std::string& text) {
  ROOST_TRY(OutFile file, OutFile::create(path));
  ROOST_TRY_DO(file.write(text, 0));
  return file.close();
}

struct Shard {
  std::string file_name;
  std::vector<const SyntheticTensor*> tensors;
  uint64_t data_begin = 0;  // of the data section in the file
};

std::string_view header_dtype(DType dtype) {
  return dtype == DType::kU32 ? "U32" : dtype == DType::kF32 ? "F32" : "BF16";
}

std::string shard_name(size_t shard, size_t n_shards) {
  if (n_shards == 1) return "model.safetensors";
  char text[64];
  std::snprintf(text, sizeof(text), "model-%05zu-of-%05zu.safetensors", shard + 1, n_shards);
  return text;
}

// Large shapes: in order, a new shard when the next tensor would exceed the limit. tiny: dealt out
// by hash, so that the parts of a module lie in different files. Inside a shard: hash order.
std::vector<Shard> cut_shards(const std::vector<SyntheticTensor>& tensors,
                              const SyntheticOptions& options) {
  std::vector<Shard> shards(static_cast<size_t>(options.n_shards));
  uint64_t n_bytes = 0;
  for (const SyntheticTensor& tensor : tensors) {
    if (options.n_shards > 1) {
      const uint64_t kind = static_cast<uint64_t>(tensor.kind);  // scales and biases share an id
      shards[(synthetic_word(0, tensor.id, kind) >> 32) % shards.size()].tensors.push_back(&tensor);
      continue;
    }
    if (n_bytes > 0 && n_bytes + tensor.n_bytes() > kShardBytesMax) {
      shards.emplace_back();
      n_bytes = 0;
    }
    n_bytes += tensor.n_bytes();
    shards.back().tensors.push_back(&tensor);
  }
  for (size_t i = 0; i < shards.size(); ++i) {
    shards[i].file_name = shard_name(i, shards.size());
    std::sort(shards[i].tensors.begin(), shards[i].tensors.end(), [](const auto* a, const auto* b) {
      const auto key = [](const auto* t) {
        return std::pair(synthetic_word(1, t->id, 0), t->kind);
      };
      return key(a) < key(b);
    });
  }
  return shards;
}

// 8 bytes of length and the JSON, not padded. With is_odd a blank is added where the data section
// would begin at an even byte: the least aligned file that MLX can write.
std::string header_of(const Shard& shard, bool is_odd) {
  std::string json = R"({"__metadata__":{"format":"mlx"})";
  uint64_t at = 0;
  for (const SyntheticTensor* tensor : shard.tensors) {
    json += ",\"" + tensor->name + "\":{\"dtype\":\"" + std::string(header_dtype(tensor->dtype)) +
            "\",\"shape\":[";
    for (int i = 0; i < tensor->shape.rank(); ++i) {
      json += (i == 0 ? "" : ",") + std::to_string(tensor->shape[i]);
    }
    json += "],\"data_offsets\":[" + std::to_string(at);
    at += tensor->n_bytes();
    json += "," + std::to_string(at) + "]}";
  }
  json += "}";
  if (is_odd && json.size() % 2 == 0) json += ' ';
  std::string header(8, '\0');
  for (size_t i = 0; i < 8; ++i) header[i] = static_cast<char>(json.size() >> (8 * i) & 0xFF);
  return header + json;
}

// One piece of one tensor, and where it goes.
struct Chunk {
  const SyntheticTensor* tensor;
  size_t file;
  uint64_t first_byte, n_bytes, at;
};

std::vector<Chunk> chunks_of(const std::vector<Shard>& shards) {
  std::vector<Chunk> chunks;
  for (size_t f = 0; f < shards.size(); ++f) {
    uint64_t at = shards[f].data_begin;
    for (const SyntheticTensor* tensor : shards[f].tensors) {
      for (uint64_t begin = 0; begin < tensor->n_bytes(); begin += kChunkBytes) {
        const uint64_t n = std::min(kChunkBytes, tensor->n_bytes() - begin);
        chunks.push_back({tensor, f, begin, n, at + begin});
      }
      at += tensor->n_bytes();
    }
  }
  return chunks;
}

Result<void> write_chunks(const std::vector<Chunk>& chunks, const std::vector<OutFile>& files,
                          uint64_t seed) {
  std::atomic<size_t> next{0};
  std::mutex mutex;
  std::optional<Error> first_error;
  const auto work = [&] {
    std::vector<std::byte> bytes;
    for (size_t i = next++; i < chunks.size(); i = next++) {
      const Chunk& chunk = chunks[i];
      bytes.resize(chunk.n_bytes);
      fill_synthetic(*chunk.tensor, seed, chunk.first_byte, bytes);
      Result<void> written = files[chunk.file].write(bytes, chunk.at);
      if (written) continue;
      const std::lock_guard lock(mutex);
      if (!first_error) first_error = std::move(written).error();
      next = chunks.size();
    }
  };
  std::vector<std::thread> threads;
  const unsigned n_threads = std::clamp(std::thread::hardware_concurrency(), 1u, kThreadsMax);
  for (unsigned t = 1; t < n_threads; ++t) threads.emplace_back(work);
  work();
  for (std::thread& thread : threads) thread.join();
  return first_error ? Result<void>(*std::move(first_error)) : Result<void>();
}

std::string index_of(const std::vector<Shard>& shards) {
  std::vector<std::pair<std::string, std::string>> entries;
  uint64_t n_bytes = 0, n_parameters = 0;
  for (const Shard& shard : shards) {
    for (const SyntheticTensor* tensor : shard.tensors) {
      entries.emplace_back(tensor->name, shard.file_name);
      n_bytes += tensor->n_bytes();
      const auto n = static_cast<uint64_t>(tensor->shape.n_elements());
      if (tensor->kind == SyntheticKind::kCodes) {
        n_parameters += n * 32 / static_cast<uint64_t>(tensor->bits);
      } else if (tensor->kind != SyntheticKind::kScales && tensor->kind != SyntheticKind::kBiases) {
        n_parameters += n;
      }
    }
  }
  std::sort(entries.begin(), entries.end());
  std::string text = "{\n\"metadata\": {\"total_size\": " + std::to_string(n_bytes) +
                     ", \"total_parameters\": " + std::to_string(n_parameters) +
                     "},\n\"weight_map\": {";
  for (size_t i = 0; i < entries.size(); ++i) {
    text += (i == 0 ? "\n\"" : ",\n\"") + entries[i].first + "\": \"" + entries[i].second + "\"";
  }
  return text + "\n}\n}\n";
}

Result<void> write_weights(const SyntheticOptions& options, const std::string& folder) {
  ROOST_TRY(const std::vector<SyntheticTensor> tensors, synthetic_tensors(options));
  std::vector<Shard> shards = cut_shards(tensors, options);
  std::vector<OutFile> files;
  for (Shard& shard : shards) {
    ROOST_TRY(OutFile file, OutFile::create(folder + "/" + shard.file_name));
    const std::string header = header_of(shard, options.shape == "tiny");
    shard.data_begin = header.size();
    ROOST_TRY_DO(file.write(header, 0));
    files.push_back(std::move(file));
  }
  ROOST_TRY_DO(write_chunks(chunks_of(shards), files, options.seed));
  for (OutFile& file : files) ROOST_TRY_DO(file.close());
  return write_text(folder + "/model.safetensors.index.json", index_of(shards));
}

}  // namespace

Result<void> write_synthetic_checkpoint(const SyntheticOptions& options,
                                        const std::string& fledgling_folder,
                                        const std::string& folder) {
  ROOST_TRY(const json::Value config, synthetic_config(options));
  ROOST_TRY(const auto text_files, synthetic_text_files(options, fledgling_folder));
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (error) return Error{Refusal::FileWrite, folder + ": " + error.message()};
  for (const auto& [name, text] : text_files) ROOST_TRY_DO(write_text(folder + "/" + name, text));
  ROOST_TRY_DO(
      write_text(folder + "/config.json", json::write(config, json::Style::kPython) + "\n"));
  return write_weights(options, folder);
}

}  // namespace roost
