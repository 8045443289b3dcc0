// What this machine's memory holds.
#pragma once

#include <cstddef>

namespace roost {

size_t available_memory_bytes();  // that a process can still take without swapping; 0: not known
size_t resident_bytes();          // of this process; 0: not known

}  // namespace roost
