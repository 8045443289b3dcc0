// Compiled grammars of one tokenizer, kept for requests that ask for the same again.
#pragma once

#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <string>

#include "grammar/matcher.h"
#include "server/structured_output.h"
#include "text/tokenizer.h"

namespace roost {

// Any network thread. Compilation is bounded in time and memory.
class GrammarStore {
 public:
  explicit GrammarStore(Tokenizer tokenizer, size_t n_bytes_max = limits::kGrammarCacheBytes)
      : tokenizer_(std::move(tokenizer)), n_bytes_max_(n_bytes_max) {}

  // The grammar of a reply; none for a free one. Refuses what the compilers of grammar/ refuse.
  Result<GrammarUse> use_of(const OutputFormat& format, bool starts_in_reasoning);

  size_t n_kept() const;
  size_t n_bytes() const;

 private:
  struct Kept {
    std::string source;
    std::shared_ptr<const Grammar> grammar;
  };

  std::shared_ptr<const TokenVocabulary> vocabulary();
  std::shared_ptr<const Grammar> find(const std::string& source);
  void keep(const std::string& source, std::shared_ptr<const Grammar> grammar);

  const Tokenizer tokenizer_;
  const size_t n_bytes_max_;
  mutable std::mutex mutex_;
  std::shared_ptr<const TokenVocabulary> vocabulary_;  // made when it is first needed
  std::list<Kept> kept_;                               // the one used last is the first
  std::map<std::string, std::list<Kept>::iterator> places_;
  size_t n_bytes_ = 0;
};

}  // namespace roost
