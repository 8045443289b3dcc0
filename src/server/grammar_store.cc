// From a checked field to a grammar over the model's tokens.
#include "server/grammar_store.h"

#include "grammar/json_schema.h"
#include "grammar/text_grammar.h"

namespace roost {

namespace {

using Kind = OutputFormat::Kind;

std::string source_of(const OutputFormat& format) {
  std::string out{static_cast<char>('0' + static_cast<int>(format.kind)),
                  format.has_space ? ' ' : '_'};
  if (format.kind == Kind::kSchema) out += json::write(format.schema);
  for (const std::string& choice : format.choices) json::write_string(choice, out);
  return out + format.text;
}

Result<Automaton> compile(const OutputFormat& format) {
  const JsonOptions options{.has_space = format.has_space};
  switch (format.kind) {
    case Kind::kSchema: {
      const size_t n_bytes = json::write(format.schema).size();
      if (n_bytes > limits::kGrammarBytesMax)
        return Error{Refusal::SchemaTooLarge, "have " + std::to_string(n_bytes) +
                                                  " bytes, at most " +
                                                  std::to_string(limits::kGrammarBytesMax)};
      return compile_json_schema(format.schema, options);
    }
    case Kind::kRegex:
      return compile_regex_grammar(format.text);
    case Kind::kChoice:
      return compile_choice(format.choices);
    case Kind::kGrammar:
      return compile_ebnf(format.text);
    case Kind::kJsonObject:
    case Kind::kFree:
      break;
  }
  return compile_json_object(options);
}

}  // namespace

std::shared_ptr<const TokenVocabulary> GrammarStore::vocabulary() {
  const std::lock_guard lock(mutex_);
  if (vocabulary_) return vocabulary_;
  std::vector<std::string> bytes;
  for (Token id = 0; id < tokenizer_.n_tokens(); ++id) {
    // Control tokens are hidden from clients: no text that a grammar could want.
    bytes.emplace_back(tokenizer_.is_special(id) ? std::string_view() : tokenizer_.bytes_of(id));
  }
  vocabulary_ = std::make_shared<const TokenVocabulary>(std::move(bytes));
  return vocabulary_;
}

Result<GrammarUse> GrammarStore::use_of(const OutputFormat& format, bool starts_in_reasoning) {
  if (format.kind == Kind::kFree) return GrammarUse{};
  const std::string source = source_of(format);
  std::shared_ptr<const Grammar> grammar = find(source);
  if (!grammar) {
    ROOST_TRY(Automaton automaton, compile(format));
    grammar = std::make_shared<const Grammar>(std::move(automaton), vocabulary());
    keep(source, grammar);
  }
  return GrammarUse{std::move(grammar), starts_in_reasoning};
}

std::shared_ptr<const Grammar> GrammarStore::find(const std::string& source) {
  const std::lock_guard lock(mutex_);
  const auto place = places_.find(source);
  if (place == places_.end()) return nullptr;
  kept_.splice(kept_.begin(), kept_, place->second);
  return kept_.front().grammar;
}

void GrammarStore::keep(const std::string& source, std::shared_ptr<const Grammar> grammar) {
  const std::lock_guard lock(mutex_);
  if (places_.contains(source)) return;  // another thread was first
  n_bytes_ += grammar->n_bytes() + 2 * source.size();
  kept_.push_front({source, std::move(grammar)});
  places_[source] = kept_.begin();
  while (n_bytes_ > n_bytes_max_ && !kept_.empty()) {
    const Kept& oldest = kept_.back();
    n_bytes_ -= oldest.grammar->n_bytes() + 2 * oldest.source.size();
    places_.erase(oldest.source);
    kept_.pop_back();
  }
}

size_t GrammarStore::n_kept() const {
  const std::lock_guard lock(mutex_);
  return kept_.size();
}

size_t GrammarStore::n_bytes() const {
  const std::lock_guard lock(mutex_);
  return n_bytes_;
}

}  // namespace roost
