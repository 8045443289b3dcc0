#include "apps/complain.h"

#include <fmt/format.h>

#include <cstdio>

namespace roost {

int complain(const Error& error) {
  fmt::print(stderr, "roost: {}\n", to_string(error));
  switch (error.refusal) {
    case Refusal::FlagUnknown:
    case Refusal::FlagValue:
      return kExitBadCommandLine;
    case Refusal::DeviceLost:
      return kExitDeviceLost;
    default:
      return kExitRefused;
  }
}

}  // namespace roost
