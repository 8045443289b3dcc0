// One safetensors file, as somebody else wrote it: every number in its header is checked.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "tensor/dtype.h"
#include "tensor/shape.h"

namespace roost {

struct TensorEntry {
  std::string name;
  DType dtype = DType::kBF16;
  Shape shape;
  std::span<const std::byte> bytes;  // any alignment; borrowed from the mapped file
  int file = 0;                      // index into Checkpoint::files()
};

// The tensors of one file. Names refuse duplicates, data ranges must tile the file exactly.
Result<std::vector<TensorEntry>> parse_safetensors(std::span<const std::byte> file,
                                                   const std::string& file_name);

}  // namespace roost
