// Compiled grammars of one tokenizer, kept for requests that ask for the same again.
#pragma once

#include <array>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "grammar/call_grammar.h"
#include "grammar/matcher.h"
#include "server/structured_output.h"
#include "text/tokenizer.h"

namespace roost {

// Everything that binds one reply.
struct ReplyForm {
  enum class Calls {
    kFree,    // nothing binds them
    kStrict,  // those of `tools` are bound where the text makes one
    kMay,     // the reply is calls of `tools` or has the form of `output`
    kMust,    // it is calls of `tools`
  };
  OutputFormat output;  // without effect beside kMust
  Calls calls = Calls::kFree;
  std::vector<CallForm> tools;
  bool is_single_call = false;

  bool is_free() const { return output.kind == OutputFormat::Kind::kFree && calls == Calls::kFree; }
  // A reply that has it is a whole; other replies end where they like.
  bool binds_all() const { return !is_free() && calls != Calls::kStrict; }
};

// Any network thread. Compilation is bounded in time and memory.
class GrammarStore {
 public:
  explicit GrammarStore(Tokenizer tokenizer, size_t n_bytes_max = limits::kGrammarCacheBytes)
      : tokenizer_(std::move(tokenizer)), n_bytes_max_(n_bytes_max) {}

  // The grammar of a reply; none for a free one. Refuses what the compilers of grammar/ refuse.
  // What of the tools is not enforced goes to `unenforced`.
  Result<GrammarUse> use_of(const ReplyForm& form, bool starts_in_reasoning,
                            std::vector<UnenforcedPlace>& unenforced);

  size_t n_kept() const;
  size_t n_bytes() const;
  size_t n_bytes_max() const { return n_bytes_max_; }

 private:
  struct Kept {
    std::string source;
    std::shared_ptr<const Grammar> grammar;
    std::vector<UnenforcedPlace> unenforced;
  };

  std::shared_ptr<const TokenVocabulary> vocabulary();
  std::optional<Kept> find(const std::string& source);
  void keep(Kept kept);

  const Tokenizer tokenizer_;
  const size_t n_bytes_max_;
  // Held while a form is compiled, by its source: who asks for the same one waits for it.
  std::array<std::mutex, 16> compiling_;
  mutable std::mutex mutex_;
  std::shared_ptr<const TokenVocabulary> vocabulary_;  // made when it is first needed
  std::list<Kept> kept_;                               // the one used last is the first
  std::map<std::string, std::list<Kept>::iterator> places_;
  size_t n_bytes_ = 0;
};

}  // namespace roost
