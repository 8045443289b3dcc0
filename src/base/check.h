// Bugs: a state that cannot be ends the process with its place and values. No input from outside
// may reach a check; what outside can cause is a refusal (result.h).
#pragma once

namespace roost {

[[noreturn]] void check_failed(const char* file, int line, const char* condition);

}  // namespace roost

#define ROOST_CHECK(condition) \
  ((condition) ? (void)0 : ::roost::check_failed(__FILE__, __LINE__, #condition))

// For inner loops: tested in debug builds and under the sanitizers only.
#ifdef NDEBUG
#define ROOST_DCHECK(condition) ((void)0)
#else
#define ROOST_DCHECK(condition) ROOST_CHECK(condition)
#endif
