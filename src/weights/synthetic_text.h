// The text files of a synthetic checkpoint: a tokenizer of the right size, template, end tokens.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "base/result.h"
#include "weights/synthetic.h"

namespace roost {

// File names and contents. `tiny` takes Fledgling's files as they are. The large shapes take its
// template and merges; made-up pieces fill the vocabulary up to the family's added tokens.
Result<std::vector<std::pair<std::string, std::string>>> synthetic_text_files(
    const SyntheticOptions& options, const std::string& fledgling_folder);

}  // namespace roost
