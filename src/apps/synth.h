// roost synth SHAPE DIR: a random checkpoint of a published geometry.
#pragma once

#include <string>

#include "weights/synthetic.h"

namespace roost {

struct SynthOptions {
  SyntheticOptions synthetic;
  std::string folder;            // where the checkpoint goes; made if it is not there
  std::string fledgling_folder;  // tokenizer and template; empty: looked for beside the program
};

// Writes the checkpoint and says what it is. Returns the process's exit status.
int run_synth(const SynthOptions& options);

}  // namespace roost
