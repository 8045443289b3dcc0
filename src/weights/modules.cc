// Modules of a model: MLX's affine triples, or plain numbers of three types.
#include "weights/modules.h"

#include <cmath>
#include <cstring>

namespace roost {

namespace {

constexpr size_t kBufferBytes = size_t{1} << 20;  // of small vectors together

bool is_float(DType dtype) {
  return dtype == DType::kBF16 || dtype == DType::kF16 || dtype == DType::kF32;
}

float float_at(const TensorEntry& entry, int64_t i) {
  const std::byte* from = entry.bytes.data() + static_cast<size_t>(i) * size_of(entry.dtype);
  if (entry.dtype == DType::kF32) {
    float value;
    std::memcpy(&value, from, sizeof(value));
    return value;
  }
  uint16_t bits;
  std::memcpy(&bits, from, sizeof(bits));
  return entry.dtype == DType::kBF16 ? f32_from_bf16(bits) : f32_from_f16(bits);
}

Error wrong_shape(const TensorEntry& entry, const Shape& want) {
  return {Refusal::TensorShape,
          entry.name + ": have " + to_string(entry.shape) + ", want " + to_string(want)};
}

Error wrong_dtype(const TensorEntry& entry, const std::string& want) {
  return {Refusal::CheckpointDtype,
          entry.name + ": have " + std::string(name_of(entry.dtype)) + ", want " + want};
}

Shape with_last(const Shape& shape, int64_t last) {
  Shape changed;
  for (int i = 0; i + 1 < shape.rank(); ++i) changed.append(shape[i]);
  changed.append(last);
  return changed;
}

int64_t n_rows(const Shape& shape) {
  int64_t n = 1;
  for (int i = 0; i + 1 < shape.rank(); ++i) n *= shape[i];
  return n;
}

int64_t last_of(const Shape& shape) {
  return shape.rank() == 0 ? 1 : shape[shape.rank() - 1];
}

std::string width_text(int64_t bits, int64_t group) {
  return std::to_string(bits) + " bits in groups of " + std::to_string(group);
}

// Width and group as the column counts of weight and scales have them, for n_in inputs; nothing
// when they fit no supported form. The input count must come from the model: 4 bits in groups of 64
// and 8 bits in groups of 32 of half the inputs have the same columns.
std::optional<QuantSpec> spec_of_columns(int64_t n_in, int64_t word_cols, int64_t scale_cols) {
  if (word_cols <= 0 || scale_cols <= 0 || word_cols > n_in || n_in % scale_cols != 0)
    return std::nullopt;
  if (word_cols * 32 % n_in != 0) return std::nullopt;
  const int64_t bits = word_cols * 32 / n_in;
  const int64_t group = n_in / scale_cols;
  if (!is_quant_width(bits) || !is_quant_group(group)) return std::nullopt;
  return QuantSpec{
      .is_quantized = true, .bits = static_cast<int>(bits), .group = static_cast<int>(group)};
}

bool is_buffer(const std::string& path) {
  return path.ends_with("rotary_emb.inv_freq");
}

}  // namespace

Tensor OwnedWeights::take(const Shape& shape) {
  Tensor tensor{.data = nullptr, .dtype = DType::kF32, .shape = shape};
  const size_t n = (tensor.n_bytes() + Arena::kAlign - 1) / Arena::kAlign * Arena::kAlign;
  n_bytes_ += n;
  if (buffers_.empty() || used_ + n > buffers_.back().n_bytes()) {
    buffers_.emplace_back(n > kBufferBytes ? n : kBufferBytes);
    used_ = 0;
  }
  tensor.data = buffers_.back().data() + used_;
  used_ += n;
  return tensor;
}

Result<ModuleReader> ModuleReader::create(const Checkpoint& checkpoint, QuantConfig quant,
                                          WeightName (*name_of)(std::string_view)) {
  ModuleReader reader(std::move(quant));
  for (const auto& [name, entry] : checkpoint.tensors()) {
    const WeightName weight = name_of(name);
    if (weight.part == ModelPart::kUnknown) return Error{Refusal::TensorUnknown, name};
    if (weight.part != ModelPart::kText) {
      reader.other_parts_.push_back(name);
      continue;
    }
    const auto [at, is_first] = reader.text_.emplace(weight.path, &entry);
    if (!is_first) return Error{Refusal::CheckpointDuplicate, name + " and " + at->second->name};
  }
  return reader;
}

const TensorEntry* ModuleReader::find(const std::string& path) const {
  const auto found = text_.find(path);
  return found == text_.end() ? nullptr : found->second;
}

Result<const TensorEntry*> ModuleReader::require(const std::string& path, const Shape& shape) {
  const TensorEntry* entry = find(path);
  if (entry == nullptr) return Error{Refusal::TensorMissing, path + " (" + to_string(shape) + ")"};
  if (!(entry->shape == shape)) return wrong_shape(*entry, shape);
  used_.insert(path);
  return entry;
}

// docs/MODEL.md, quantization in config.json: a module's own entry, else the global values where
// there are scales.
Result<std::optional<QuantSpec>> ModuleReader::spec_of(const std::string& module) const {
  const TensorEntry* scales = find(module + ".scales");
  const auto own = quant_.modules.find(module);
  if (own != quant_.modules.end() && !own->second.is_quantized) {
    if (scales == nullptr) return std::optional<QuantSpec>();
    return Error{Refusal::QuantFormat,
                 scales->name + ": config.json says that the module is not quantized"};
  }
  if (own != quant_.modules.end()) return std::optional<QuantSpec>(own->second);
  if (scales == nullptr) return std::optional<QuantSpec>();
  if (!quant_.global) {
    return Error{Refusal::QuantFormat, scales->name + ": config.json has no quantization"};
  }
  return quant_.global;
}

const std::byte* ModuleReader::place(const TensorEntry& entry, DType wanted) {
  if (entry.dtype == wanted) {
    bytes_mapped_ += entry.bytes.size();
    return entry.bytes.data();
  }
  const Tensor copy = owned_.take(entry.shape);
  const int64_t n = entry.shape.n_elements();
  for (int64_t i = 0; i < n; ++i) copy.as<float>()[i] = float_at(entry, i);
  return copy.data;
}

Result<QuantMatrix> ModuleReader::plain(const std::string& path, const Shape& shape) {
  ROOST_TRY(const TensorEntry* entry, require(path, shape));
  if (!is_float(entry->dtype)) return wrong_dtype(*entry, "bf16, f16 or f32");
  QuantMatrix m{.format = QuantMatrix::Format::kPlain,
                .dtype = entry->dtype == DType::kBF16 ? DType::kBF16 : DType::kF32,
                .n_out = n_rows(shape),
                .n_in = last_of(shape)};
  m.codes = place(*entry, m.dtype);
  return m;
}

Result<QuantMatrix> ModuleReader::affine(const std::string& module, const QuantSpec& spec,
                                         const Shape& shape) {
  const int64_t n_in = last_of(shape);
  const TensorEntry* words = find(module + ".weight");
  const TensorEntry* scales = find(module + ".scales");
  const TensorEntry* biases = find(module + ".biases");
  for (const auto& [entry, part] : {std::pair(words, ".weight"), std::pair(scales, ".scales")}) {
    if (entry == nullptr) return Error{Refusal::TensorMissing, module + part};
  }
  if (biases == nullptr && scales->dtype == DType::kU8) {
    return Error{Refusal::QuantFormat,
                 scales->name + ": scales of u8 and no biases (mxfp4, nvfp4 or mxfp8)"};
  }
  if (biases == nullptr) return Error{Refusal::TensorMissing, module + ".biases"};
  if (words->dtype != DType::kU32) return wrong_dtype(*words, "u32");
  for (const TensorEntry* entry : {scales, biases}) {
    if (!is_float(entry->dtype)) return wrong_dtype(*entry, "bf16, f16 or f32");
  }

  const auto seen = spec_of_columns(n_in, last_of(words->shape), last_of(scales->shape));
  if (seen && (seen->bits != spec.bits || seen->group != spec.group)) {
    return Error{Refusal::QuantFormat, words->name + ": config.json says " +
                                           width_text(spec.bits, spec.group) + ", the shapes say " +
                                           width_text(seen->bits, seen->group)};
  }
  if (n_in % spec.group != 0) {
    return Error{Refusal::QuantFormat, words->name + ": " + std::to_string(n_in) +
                                           " inputs in groups of " + std::to_string(spec.group)};
  }
  ROOST_TRY_DO(require(module + ".weight", with_last(shape, n_in / 32 * spec.bits)));
  ROOST_TRY_DO(require(module + ".scales", with_last(shape, n_in / spec.group)));
  ROOST_TRY_DO(require(module + ".biases", with_last(shape, n_in / spec.group)));

  const bool is_bf16 = scales->dtype == DType::kBF16 && biases->dtype == DType::kBF16;
  QuantMatrix m{.format = QuantMatrix::Format::kAffine,
                .bits = spec.bits,
                .group = spec.group,
                .dtype = is_bf16 ? DType::kBF16 : DType::kF32,
                .n_out = n_rows(shape),
                .n_in = n_in};
  m.codes = place(*words, DType::kU32);
  m.scales = place(*scales, m.dtype);
  m.biases = place(*biases, m.dtype);
  return m;
}

Result<QuantMatrix> ModuleReader::matrix(const std::string& module, int64_t n_out, int64_t n_in) {
  ROOST_TRY(const std::optional<QuantSpec> spec, spec_of(module));
  return spec ? affine(module, *spec, {n_out, n_in}) : plain(module + ".weight", {n_out, n_in});
}

Result<QuantMatrix> ModuleReader::stack(const std::string& module, int64_t n_stacked, int64_t n_out,
                                        int64_t n_in) {
  ROOST_TRY(const std::optional<QuantSpec> spec, spec_of(module));
  const Shape shape{n_stacked, n_out, n_in};
  return spec ? affine(module, *spec, shape) : plain(module + ".weight", shape);
}

Result<QuantMatrix> ModuleReader::plain_stack(const std::string& path, int64_t n_stacked,
                                              int64_t n_out, int64_t n_in) {
  return plain(path, {n_stacked, n_out, n_in});
}

Result<Tensor> ModuleReader::floats(const TensorEntry& entry, const Shape& shape, float add) {
  if (!is_float(entry.dtype)) return wrong_dtype(entry, "bf16, f16 or f32");
  const Tensor out = owned_.take(shape);
  for (int64_t i = 0; i < shape.n_elements(); ++i) {
    const float value = float_at(entry, i) + add;
    if (!std::isfinite(value)) {
      return Error{Refusal::TensorValue, entry.name + ": element " + std::to_string(i) + " is " +
                                             (std::isnan(value) ? "not a number" : "infinite")};
    }
    out.as<float>()[i] = value;
  }
  return out;
}

Result<Tensor> ModuleReader::vector(const std::string& path, int64_t n, float add) {
  ROOST_TRY(const TensorEntry* entry, require(path, {n}));
  return floats(*entry, {n}, add);
}

Result<Tensor> ModuleReader::numbers(const std::string& path, const Shape& shape) {
  ROOST_TRY(const TensorEntry* entry, require(path, shape));
  return floats(*entry, shape, 0);
}

Result<bool> ModuleReader::is_raw(const std::string& conv_path) const {
  const TensorEntry* entry = find(conv_path);
  if (entry == nullptr) return Error{Refusal::TensorMissing, conv_path};
  if (entry->shape.rank() != 3) return wrong_shape(*entry, {last_of(entry->shape), 4, 1});
  return entry->shape[2] != 1;
}

Result<Tensor> ModuleReader::conv_taps(const std::string& path, int64_t n_channels) {
  // The four taps of a channel lie together in either order of the axes.
  ROOST_TRY(const bool raw, is_raw(path));
  ROOST_TRY(const TensorEntry* entry,
            require(path, raw ? Shape{n_channels, 1, 4} : Shape{n_channels, 4, 1}));
  return floats(*entry, {n_channels, 4}, 0);
}

Result<std::vector<std::string>> ModuleReader::left_out() const {
  std::vector<std::string> names = other_parts_;
  for (const auto& [path, entry] : text_) {
    if (used_.contains(path)) continue;
    if (!is_buffer(path)) {
      return Error{Refusal::TensorUnknown, entry->name + " (" + to_string(entry->shape) + ")"};
    }
    names.push_back(entry->name);
  }
  return names;
}

}  // namespace roost
