#include "base/check.h"

#include <cstdio>
#include <cstdlib>

namespace roost {

void check_failed(const char* file, int line, const char* condition) {
  std::fprintf(stderr, "roost: bug at %s:%d: %s\n", file, line, condition);
  std::abort();
}

}  // namespace roost
