// The tensors of one safetensors file: every number of the header against the bytes that are there.
#include "weights/safetensors.h"

#include <algorithm>
#include <cstring>
#include <numeric>
#include <optional>
#include <utility>

#include "base/limits.h"
#include "weights/safetensors_header.h"

namespace roost {

namespace {

constexpr size_t kLengthBytes = 8;  // the header's length, little-endian, in front of it

std::optional<DType> dtype_named(std::string_view name) {
  constexpr std::pair<std::string_view, DType> kNames[] = {
      {"BF16", DType::kBF16}, {"F16", DType::kF16}, {"F32", DType::kF32}, {"F64", DType::kF64},
      {"I8", DType::kI8},     {"U8", DType::kU8},   {"I16", DType::kI16}, {"I32", DType::kI32},
      {"U32", DType::kU32},   {"I64", DType::kI64}};
  for (const auto& [known, dtype] : kNames) {
    if (name == known) return dtype;
  }
  return std::nullopt;
}

// Bytes of a tensor of that shape; nothing if they do not fit 63 bits. Extents beside a zero must
// fit as well: whoever multiplies the extents in order then never overflows.
std::optional<uint64_t> bytes_of(const std::vector<uint64_t>& shape, DType dtype) {
  int64_t n_bytes = static_cast<int64_t>(size_of(dtype));
  bool is_empty = false;
  for (const uint64_t dim : shape) {
    is_empty |= dim == 0;
    if (dim != 0 && __builtin_mul_overflow(n_bytes, dim, &n_bytes)) return std::nullopt;
  }
  return is_empty ? 0 : static_cast<uint64_t>(n_bytes);
}

struct File {
  std::string name;
  std::span<const std::byte> data;  // behind the header
};

Result<TensorEntry> check_entry(const HeaderEntry& raw, const File& file) {
  const std::string place = file.name + ": " + raw.name + ": ";
  const std::optional<DType> dtype = dtype_named(raw.dtype);
  if (!dtype) {
    return Error{Refusal::CheckpointDtype,
                 place + raw.dtype.substr(0, limits::kErrorValueBytesMax)};
  }
  const std::string range = "bytes " + std::to_string(raw.begin) + " to " + std::to_string(raw.end);
  if (raw.begin > raw.end || raw.end > file.data.size()) {
    return Error{Refusal::CheckpointData,
                 place + range + " of " + std::to_string(file.data.size())};
  }
  TensorEntry entry;
  entry.name = raw.name;
  entry.dtype = *dtype;
  for (const uint64_t dim : raw.shape) {
    if (dim > INT64_MAX) return Error{Refusal::CheckpointData, place + "an extent is too large"};
    entry.shape.append(static_cast<int64_t>(dim));
  }
  const std::optional<uint64_t> n_bytes = bytes_of(raw.shape, *dtype);
  if (!n_bytes || *n_bytes != raw.end - raw.begin) {
    return Error{Refusal::CheckpointData, place + to_string(entry.shape) + " of " +
                                              std::string(name_of(*dtype)) + " in " + range};
  }
  entry.bytes = file.data.subspan(raw.begin, raw.end - raw.begin);
  return entry;
}

// Sorted by place, each tensor must begin where the one before ends, and the last one ends the
// file.
Result<void> check_tiling(const std::vector<HeaderEntry>& entries, const File& file) {
  std::vector<size_t> order(entries.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    return std::pair(entries[a].begin, entries[a].end) <
           std::pair(entries[b].begin, entries[b].end);
  });
  uint64_t at = 0;
  for (const size_t i : order) {
    if (entries[i].begin != at) {
      const char* what = entries[i].begin < at ? " overlaps the tensor that ends at byte "
                                               : " leaves a gap behind byte ";
      return Error{Refusal::CheckpointData,
                   file.name + ": " + entries[i].name + what + std::to_string(at)};
    }
    at = entries[i].end;
  }
  if (at != file.data.size()) {
    return Error{Refusal::CheckpointData, file.name + ": " + std::to_string(file.data.size() - at) +
                                              " bytes behind the last tensor belong to none"};
  }
  return {};
}

Result<void> check_names(const std::vector<HeaderEntry>& entries, const std::string& file_name) {
  std::vector<std::string_view> names;
  names.reserve(entries.size());
  for (const HeaderEntry& entry : entries) names.push_back(entry.name);
  std::sort(names.begin(), names.end());
  const auto twice = std::adjacent_find(names.begin(), names.end());
  if (twice == names.end()) return {};
  return Error{Refusal::CheckpointDuplicate, file_name + ": " + std::string(*twice)};
}

}  // namespace

Result<std::vector<TensorEntry>> parse_safetensors(std::span<const std::byte> file,
                                                   const std::string& file_name) {
  if (file.size() < kLengthBytes) {
    return Error{Refusal::CheckpointHeader, file_name + ": " + std::to_string(file.size()) +
                                                " bytes have no room for a header"};
  }
  uint64_t header_bytes = 0;
  for (size_t i = 0; i < kLengthBytes; ++i) {
    header_bytes |= static_cast<uint64_t>(file[i]) << (8 * i);
  }
  if (header_bytes > limits::kSafetensorsHeaderBytesMax ||
      header_bytes > file.size() - kLengthBytes) {
    return Error{Refusal::CheckpointHeader,
                 file_name + ": a header of " + std::to_string(header_bytes) +
                     " bytes in a file of " + std::to_string(file.size()) + " (at most " +
                     std::to_string(limits::kSafetensorsHeaderBytesMax) + ")"};
  }
  const std::string_view header(reinterpret_cast<const char*>(file.data()) + kLengthBytes,
                                header_bytes);
  Result<std::vector<HeaderEntry>> entries = parse_safetensors_header(header);
  if (!entries) return Error{entries.error().refusal, file_name + ": " + entries.error().detail};

  const File rest{file_name, file.subspan(kLengthBytes + header_bytes)};
  ROOST_TRY_DO(check_names(*entries, file_name));
  std::vector<TensorEntry> tensors;
  tensors.reserve(entries->size());
  for (const HeaderEntry& raw : *entries) {
    ROOST_TRY(TensorEntry entry, check_entry(raw, rest));
    tensors.push_back(std::move(entry));
  }
  ROOST_TRY_DO(check_tiling(*entries, rest));
  return tensors;
}

}  // namespace roost
