// What is made of the table of flags beside the help: completions of shells, the man page.
#pragma once

#include <string>

#include "base/result.h"

namespace roost {

// shell: bash, zsh or fish. Refuses flag.value.
Result<std::string> completion_script(const std::string& shell);

std::string man_page();  // in roff

}  // namespace roost
