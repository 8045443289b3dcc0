// The skeleton of a call around the values of its parameters.
#include "grammar/call_grammar.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>

#include "grammar/json_schema.h"
#include "grammar/regex.h"

namespace roost {

namespace {

constexpr uint32_t kCallsMax = 128;   // of one reply
constexpr size_t kUnorderedMax = 64;  // parameters that may come in any order
constexpr std::string_view kValueEnd = "\n</parameter>\n";
// Keywords of the parameters themselves that the skeleton of a call takes up.
constexpr std::string_view kOwnKeywords[] = {
    "type", "properties", "required", "additionalProperties", "$defs", "definitions"};

void add_blanks(ByteNfa& nfa, int32_t at) {
  for (const uint8_t blank : {' ', '\t', '\r', '\n'}) nfa.add_edge(at, blank, blank, at);
}

// Text of a value up to its end. What the parser of calls would take for another end is never
// written: a closer in front of the next tag, and a line that is an opener.
Result<ByteDfa> value_text(GrammarBudget& budget) {
  ByteNfa nfa;
  const int32_t anywhere = nfa.add_anywhere();
  nfa.accept(nfa.add_text(anywhere, kValueEnd), 0);
  const int32_t closed = nfa.add_state();
  nfa.add_empty(nfa.add_text(anywhere, "</parameter>"), closed);
  add_blanks(nfa, closed);
  for (const char* tag : {"<parameter=", "</function>"})
    nfa.accept(nfa.add_text(closed, tag), kNeverFind);
  for (const int32_t line : {nfa.add_text(anywhere, "\n"), 0}) {  // a value begins with a line
    const int32_t name = nfa.add_text(line, "<parameter=");
    for (const auto& [low, high] :
         {std::pair{0x00, 0x09}, std::pair{0x0B, 0x0C}, std::pair{0x0E, '<' - 1},
          std::pair{'<' + 1, '>' - 1}, std::pair{'>' + 1, 0xFF}})
      nfa.add_edge(name, static_cast<uint8_t>(low), static_cast<uint8_t>(high), name);
    nfa.accept(nfa.add_text(name, ">\n"), kNeverFind);
  }
  return until_found(nfa, budget);
}

const DfaPtr& value_text_dfa() {
  static const DfaPtr kDfa = [] {
    GrammarBudget budget;
    return lasting_dfa(value_text(budget));
  }();
  return kDfa;
}

const DfaPtr& any_parameter_dfa() {
  static const DfaPtr kDfa = [] {
    GrammarBudget budget;
    return lasting_dfa(compile_regex("<parameter=[^<>\\n\\r ][^<>\\n\\r]{0,63}>", {}, budget));
  }();
  return kDfa;
}

class CallCompiler {
 public:
  CallCompiler(AutomatonBuilder& builder, std::vector<UnenforcedPlace>* unenforced)
      : builder_(builder), unenforced_(unenforced) {}

  Result<void> prepare(const std::vector<CallForm>& tools) {
    ROOST_TRY(value_end_, builder_.add_literal(kValueEnd));
    ROOST_TRY(text_, builder_.add_bytes(value_text_dfa()));
    ROOST_TRY(newline_, builder_.add_literal("\n"));
    Punctuation& p = punctuation_;
    ROOST_TRY(p.open_object, builder_.add_literal(""));
    ROOST_TRY(p.close_object, builder_.add_literal("</function>\n</tool_call>"));
    p.comma = p.open_object;
    p.colon = newline_;
    p.close_empty_object = p.close_object;
    for (size_t i = 0; i < tools.size(); ++i) {
      const Result<RuleId> parameters = parameters_of(i, tools[i]);
      if (!parameters)
        return Error{parameters.error().refusal,
                     fmt::format("tool {}: {}", tools[i].name, parameters.error().detail)};
      ROOST_TRY(const RuleId rest, builder_.add_sequence({newline_, *parameters}));
      rests_.push_back(rest);
    }
    return {};
  }

  Result<RuleId> calls(const std::vector<CallForm>& tools, bool is_single) {
    std::vector<RuleId> calls;
    for (size_t i = 0; i < tools.size(); ++i) {
      ROOST_TRY(const RuleId name, builder_.add_literal(tools[i].name + ">"));
      ROOST_TRY(const RuleId call, builder_.add_sequence({name, rests_[i]}));
      calls.push_back(call);
    }
    ROOST_TRY(const RuleId any, builder_.add_choice(std::move(calls)));
    ROOST_TRY(const RuleId begin, builder_.add_literal("<tool_call>\n<function="));
    ROOST_TRY(const RuleId call, builder_.add_sequence({begin, any}));
    ROOST_TRY(ByteDfa blanks, compile_regex("\\n{0,2}", {}, builder_.budget()));
    ROOST_TRY(const RuleId before, builder_.add_bytes(std::move(blanks)));
    if (is_single) return builder_.add_sequence({before, call});
    ROOST_TRY(const RuleId further, builder_.add_sequence({newline_, call}));
    Rule more{.kind = RuleKind::kRepeat};
    more.children = {further};
    more.max = kCallsMax - 1;
    ROOST_TRY(const RuleId rest, builder_.add(std::move(more)));
    return builder_.add_sequence({before, call, rest});
  }

  // Text up to a name, then that of a tool and the rest of its call, or another name; at last text
  // without any of these calls.
  Result<RuleId> free_text_with(const std::vector<CallForm>& tools) {
    ByteNfa openings, headers, others;
    add_opening(openings, [&](int32_t at) { openings.accept(at, 0); });
    add_opening(headers, [&](int32_t at) { headers.accept(add_names(headers, at, tools), 0); });
    ROOST_TRY(ByteDfa until, until_found(openings, builder_.budget()));
    ROOST_TRY(ByteDfa without, without_finds(headers, builder_.budget()));
    others.accept(add_names(others, 0, tools), 0);
    ROOST_TRY(ByteDfa names, others.determinize(builder_.budget()));
    ROOST_TRY(const RuleId other_name, builder_.add_bytes(no_name(names)));
    std::vector<RuleId> calls{other_name};
    for (size_t i = 0; i < tools.size(); ++i) {
      ByteNfa own;
      own.accept(add_names(own, 0, {tools[i]}), 0);
      ROOST_TRY(ByteDfa name, own.determinize(builder_.budget()));
      ROOST_TRY(const RuleId name_rule, builder_.add_bytes(std::move(name)));
      ROOST_TRY(const RuleId call, builder_.add_sequence({name_rule, rests_[i]}));
      calls.push_back(call);
    }
    ROOST_TRY(const RuleId begin, builder_.add_bytes(std::move(until)));
    ROOST_TRY(const RuleId any, builder_.add_choice(std::move(calls)));
    ROOST_TRY(const RuleId one, builder_.add_sequence({begin, any}));
    Rule more{.kind = RuleKind::kRepeat};
    more.children = {one};
    ROOST_TRY(const RuleId all, builder_.add(std::move(more)));
    ROOST_TRY(const RuleId end, builder_.add_bytes(std::move(without)));
    return builder_.add_sequence({all, end});
  }

 private:
  // "<tool_call>", blanks, "<function=", or that at the start of a line.
  template <class Then>
  static void add_opening(ByteNfa& nfa, const Then& then) {
    const int32_t anywhere = nfa.add_anywhere();
    const int32_t begin = nfa.add_state(), tagged = nfa.add_state();
    nfa.add_empty(0, begin);
    nfa.add_empty(nfa.add_text(anywhere, "\n"), begin);
    nfa.add_empty(nfa.add_text(anywhere, "<tool_call>"), tagged);
    add_blanks(nfa, tagged);
    nfa.add_empty(tagged, begin);
    then(nfa.add_text(begin, "<function="));
  }

  // A name as the parser of calls finds it: between blanks, in any case; and ">".
  static int32_t add_names(ByteNfa& nfa, int32_t from, const std::vector<CallForm>& tools) {
    const int32_t begin = nfa.add_state(), end = nfa.add_state();
    nfa.add_empty(from, begin);
    for (const uint8_t blank : {' ', '\t'}) {
      nfa.add_edge(begin, blank, blank, begin);
      nfa.add_edge(end, blank, blank, end);
    }
    for (const CallForm& tool : tools) {
      int32_t at = begin;
      for (const char c : tool.name) {
        const int32_t next = nfa.add_state();
        for (const int other : {std::tolower(static_cast<unsigned char>(c)),
                                std::toupper(static_cast<unsigned char>(c))})
          nfa.add_edge(at, static_cast<uint8_t>(other), static_cast<uint8_t>(other), next);
        at = next;
      }
      nfa.add_empty(at, end);
    }
    return nfa.add_text(end, ">");
  }

  // The first byte that no name goes on with.
  static ByteDfa no_name(const ByteDfa& names) {
    ByteDfa out = names;
    const auto proven = static_cast<int32_t>(out.tags.size());
    for (int32_t& to : out.next) {
      const bool is_name = to != ByteDfa::kDead && names.accepts(to);
      to = to == ByteDfa::kDead ? proven : is_name ? ByteDfa::kDead : to;
    }
    std::fill(out.tags.begin(), out.tags.end(), ByteDfa::kDead);
    out.tags.push_back(0);
    out.next.insert(out.next.end(), static_cast<size_t>(out.n_classes), ByteDfa::kDead);
    return trim(out);
  }

  Result<void> let_go(size_t tool_idx, const CallForm& tool, const Error& error) {
    if (tool.is_strict || error.refusal == Refusal::SchemaTooLarge) return error;
    // "#/properties/a/not: why"
    const size_t end = std::min(error.detail.find(": "), error.detail.size());
    if (unenforced_ != nullptr)
      unenforced_->push_back({tool_idx, error.detail.substr(std::min<size_t>(1, end), end - 1)});
    return {};
  }

  // What of the parameters as a whole is no part of the skeleton.
  Result<void> check_whole(size_t tool_idx, const CallForm& tool, SchemaDocument& document) {
    if (tool.parameters.is_null()) return {};
    if (!tool.parameters.is_object())
      return let_go(tool_idx, tool, {Refusal::SchemaInvalid, "#: want an object"});
    for (const auto& [key, value] : tool.parameters.members()) {
      const bool is_own = std::find(std::begin(kOwnKeywords), std::end(kOwnKeywords), key) !=
                          std::end(kOwnKeywords);
      const bool is_schema_of_others = key == "additionalProperties" && !value.is_bool();
      if ((is_own && !is_schema_of_others) || fate_of_keyword(key) == KeywordFate::kIgnored)
        continue;
      ROOST_TRY_DO(let_go(tool_idx, tool,
                          document.refuse(Refusal::SchemaKeyword, tool.parameters, key,
                                          "not of the parameters of a call")));
    }
    return {};
  }

  Result<RuleId> parameters_of(size_t tool_idx, const CallForm& tool) {
    ObjectRule object;
    std::vector<std::string> keys;
    const json::Value* properties = tool.parameters.find("properties");
    const json::Value* required = tool.parameters.find("required");
    const json::Value* others = tool.parameters.find("additionalProperties");
    const bool is_closed = others != nullptr && others->is_bool() && !others->as_bool();
    SchemaDocument document(tool.parameters);
    ROOST_TRY_DO(check_whole(tool_idx, tool, document));
    std::vector<std::string> needed;
    if (required != nullptr && required->is_array())
      for (const json::Value& one : required->items())
        if (one.is_string()) needed.push_back(one.as_string());
    const auto add = [&](const std::string& name, RuleId value) {
      const auto place = std::find(needed.begin(), needed.end(), name);
      object.properties.push_back({value, place != needed.end()});
      std::erase(needed, name);
      keys.push_back(fmt::format("<parameter={}>", name));
    };
    if (properties != nullptr && properties->is_object()) {
      for (const auto& [name, schema] : properties->members()) {
        ROOST_TRY(const RuleId value, value_of(tool_idx, tool, document, name, schema));
        add(name, value);
      }
    }
    // Names that are required and not declared are others; where there are none, nothing fits.
    for (const std::string& name : std::vector<std::string>(needed)) {
      if (std::find(needed.begin(), needed.end(), name) == needed.end()) continue;
      ROOST_TRY(const RuleId never, builder_.reserve());
      add(name, is_closed ? never : text_);
    }
    if (!is_closed) {
      object.other_keys = any_parameter_dfa();
      object.other_values = {text_};
    }
    object.is_unordered = object.properties.size() <= kUnorderedMax;
    object.punctuation = punctuation_;
    return builder_.add_object(std::move(object), keys);
  }

  // The text of a value and its end.
  Result<RuleId> value_of(size_t tool_idx, const CallForm& tool, SchemaDocument& document,
                          const std::string& name, const json::Value& schema) {
    const Result<RuleId> value = typed_value(document, name, schema);
    if (value) return value;
    ROOST_TRY_DO(let_go(tool_idx, tool, value.error()));
    return text_;
  }

  Result<RuleId> typed_value(SchemaDocument& document, const std::string& name,
                             const json::Value& schema) {
    ROOST_TRY(const json::Value* own,
              document.child(document.root(), schema, "properties/" + pointer_escaped(name)));
    ROOST_TRY(const std::optional<SchemaSet> flat, document.flatten({{own, 0}}));
    if (!flat) return builder_.reserve();  // false: the parameter never comes
    ROOST_TRY(const Constraints all, document.gather(*flat));
    const bool may_be_text = (all.types & json_types::kString) != 0;
    if (!may_be_text) {
      ROOST_TRY(const RuleId json, add_json_schema(builder_, document, *own));
      return builder_.add_sequence({json, value_end_});
    }
    const bool are_texts =
        all.values && std::all_of(all.values->begin(), all.values->end(),
                                  [](const json::Value* value) { return value->is_string(); });
    if (!are_texts) return text_;
    std::vector<std::string> texts;
    for (const json::Value* value : *all.values)
      texts.push_back(value->as_string() + std::string(kValueEnd));
    ROOST_TRY(ByteDfa dfa, literal_dfa(texts, builder_.budget()));
    return builder_.add_bytes(std::move(dfa));
  }

  AutomatonBuilder& builder_;
  std::vector<UnenforcedPlace>* unenforced_;
  RuleId value_end_ = kNoRule, text_ = kNoRule, newline_ = kNoRule;
  Punctuation punctuation_;    // of calls: tags for brackets, line ends for colons
  std::vector<RuleId> rests_;  // of each tool: what stands behind its name
};

}  // namespace

Result<Automaton> compile_calls(const std::vector<CallForm>& tools, bool is_single,
                                std::vector<UnenforcedPlace>* unenforced) {
  GrammarBudget budget{.refusal = Refusal::SchemaTooLarge};
  AutomatonBuilder builder(budget);
  ROOST_TRY_DO(builder.add_punctuation(true));
  CallCompiler compiler(builder, unenforced);
  ROOST_TRY_DO(compiler.prepare(tools));
  ROOST_TRY(const RuleId root, compiler.calls(tools, is_single));
  return builder.finish(root, limits::kValueDepthMax, Refusal::SchemaUnsatisfiable);
}

Result<Automaton> compile_strict_calls(const std::vector<CallForm>& tools,
                                       std::vector<UnenforcedPlace>* unenforced) {
  GrammarBudget budget{.refusal = Refusal::SchemaTooLarge};
  AutomatonBuilder builder(budget);
  ROOST_TRY_DO(builder.add_punctuation(true));
  CallCompiler compiler(builder, unenforced);
  ROOST_TRY_DO(compiler.prepare(tools));
  ROOST_TRY(const RuleId root, compiler.free_text_with(tools));
  ROOST_TRY(Automaton out,
            builder.finish(root, limits::kValueDepthMax, Refusal::SchemaUnsatisfiable));
  out.let_reasoning_be_the_whole();
  return out;
}

}  // namespace roost
