// Any bytes as a safetensors file: read or refused, and what is read lies inside the file.
#include <cstddef>
#include <cstdint>

#include "base/check.h"
#include "weights/safetensors.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto file = std::as_bytes(std::span(data, size));
  const auto tensors = roost::parse_safetensors(file, "fuzz");
  if (!tensors) return 0;
  size_t n_bytes = 0;
  for (const roost::TensorEntry& entry : *tensors) {
    ROOST_CHECK(entry.bytes.data() >= file.data() &&
                entry.bytes.data() + entry.bytes.size() <= file.data() + file.size());
    ROOST_CHECK(static_cast<size_t>(entry.shape.n_elements()) * roost::size_of(entry.dtype) ==
                entry.bytes.size());
    n_bytes += entry.bytes.size();
  }
  ROOST_CHECK(n_bytes <= size);
  return 0;
}
