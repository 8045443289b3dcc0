#include "base/memory.h"

#include <unistd.h>

#include <cstdio>
#include <cstring>

namespace roost {
namespace {

// The first number behind `key` in a file of "key: number kB" lines.
size_t kilobytes_of(const char* path, const char* key) {
  std::FILE* file = std::fopen(path, "r");
  if (file == nullptr) return 0;
  char line[256];
  unsigned long long n = 0;
  while (std::fgets(line, sizeof line, file) != nullptr) {
    if (std::strncmp(line, key, std::strlen(key)) == 0 &&
        std::sscanf(line + std::strlen(key), ": %llu", &n) == 1)
      break;
  }
  std::fclose(file);
  return static_cast<size_t>(n);
}

}  // namespace

size_t available_memory_bytes() {
  return kilobytes_of("/proc/meminfo", "MemAvailable") * 1024;
}

size_t resident_bytes() {
  return kilobytes_of("/proc/self/status", "VmRSS") * 1024;
}

}  // namespace roost
