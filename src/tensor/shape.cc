// The text form of a shape.
#include "tensor/shape.h"

namespace roost {

std::string to_string(const Shape& shape) {
  if (shape.rank() == 0) return "scalar";
  std::string text;
  for (int i = 0; i < shape.rank(); ++i) {
    if (i > 0) text += 'x';
    text += std::to_string(shape[i]);
  }
  return text;
}

}  // namespace roost
