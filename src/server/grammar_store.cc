// From a checked field to a grammar over the model's tokens.
#include "server/grammar_store.h"

#include <functional>

#include "grammar/json_schema.h"
#include "grammar/text_grammar.h"

namespace roost {

namespace {

using Kind = OutputFormat::Kind;

// Equal sources have equal grammars.
std::string source_of(const ReplyForm& form) {
  const OutputFormat& format = form.output;
  std::string out{
      static_cast<char>('0' + static_cast<int>(format.kind)), format.has_space ? ' ' : '_',
      static_cast<char>('0' + static_cast<int>(form.calls)), form.is_single_call ? '1' : '+'};
  for (const CallForm& tool : form.tools) {
    json::write_string(tool.name, out);
    out += tool.is_strict ? '!' : ':';
    out += json::write(tool.parameters);
  }
  if (format.kind == Kind::kSchema) out += json::write(format.schema);
  for (const std::string& choice : format.choices) json::write_string(choice, out);
  return out + format.text;
}

Result<Automaton> compile_output(const OutputFormat& format) {
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

Result<Automaton> compile(const ReplyForm& form, std::vector<UnenforcedPlace>& unenforced) {
  using Calls = ReplyForm::Calls;
  if (form.calls == Calls::kFree) return compile_output(form.output);
  if (form.calls == Calls::kStrict) return compile_strict_calls(form.tools, &unenforced);
  ROOST_TRY(Automaton calls, compile_calls(form.tools, form.is_single_call, &unenforced));
  if (form.calls == Calls::kMust) return calls;
  ROOST_TRY(Automaton output, compile_output(form.output));
  return either(std::move(output), std::move(calls));
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

Result<GrammarUse> GrammarStore::use_of(const ReplyForm& form, bool starts_in_reasoning,
                                        std::vector<UnenforcedPlace>& unenforced) {
  if (form.is_free()) return GrammarUse{};
  Kept kept{source_of(form), nullptr, {}};
  std::optional<Kept> known = find(kept.source);
  std::unique_lock<std::mutex> compiling;
  if (!known) {
    compiling =
        std::unique_lock(compiling_[std::hash<std::string>()(kept.source) % compiling_.size()]);
    known = find(kept.source);  // another thread may have been first
  }
  if (known) {
    kept = *std::move(known);
  } else {
    ROOST_TRY(Automaton automaton, compile(form, kept.unenforced));
    kept.grammar = std::make_shared<const Grammar>(std::move(automaton), vocabulary());
    kept.grammar->prepare();
    keep(kept);
  }
  unenforced = std::move(kept.unenforced);
  return GrammarUse{std::move(kept.grammar), starts_in_reasoning};
}

std::optional<GrammarStore::Kept> GrammarStore::find(const std::string& source) {
  const std::lock_guard lock(mutex_);
  const auto place = places_.find(source);
  if (place == places_.end()) return std::nullopt;
  kept_.splice(kept_.begin(), kept_, place->second);
  return kept_.front();
}

void GrammarStore::keep(Kept kept) {
  const std::lock_guard lock(mutex_);
  n_bytes_ += kept.grammar->n_bytes() + 2 * kept.source.size();
  kept_.push_front(std::move(kept));
  places_[kept_.front().source] = kept_.begin();
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
