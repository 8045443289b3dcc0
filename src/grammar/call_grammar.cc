// The skeleton of a call around the values of its parameters.
#include "grammar/call_grammar.h"

#include <fmt/format.h>

#include <algorithm>

#include "grammar/json_schema.h"
#include "grammar/regex.h"

namespace roost {

namespace {

constexpr uint32_t kCallsMax = 128;   // of one reply
constexpr size_t kUnorderedMax = 64;  // parameters that may come in any order
constexpr std::string_view kValueEnd = "\n</parameter>\n";

class CallCompiler {
 public:
  CallCompiler(AutomatonBuilder& builder, std::vector<std::string>* unenforced)
      : builder_(builder), unenforced_(unenforced) {}

  Result<RuleId> compile(const std::vector<CallForm>& tools, bool is_single) {
    ROOST_TRY(value_end_, builder_.add_literal(kValueEnd));
    ROOST_TRY(ByteDfa text, until_dfa(kValueEnd, builder_.budget()));
    ROOST_TRY(text_, builder_.add_bytes(std::move(text)));
    std::vector<RuleId> calls;
    for (const CallForm& tool : tools) {
      ROOST_TRY(const RuleId name, builder_.add_literal(tool.name + ">\n"));
      ROOST_TRY(const RuleId parameters, parameters_of(tool));
      ROOST_TRY(const RuleId call, builder_.add_sequence({name, parameters}));
      calls.push_back(call);
    }
    ROOST_TRY(const RuleId any, builder_.add_choice(std::move(calls)));
    ROOST_TRY(const RuleId begin, builder_.add_literal("<tool_call>\n<function="));
    ROOST_TRY(const RuleId call, builder_.add_sequence({begin, any}));
    ROOST_TRY(ByteDfa blanks, compile_regex("\\n{0,2}", {}, builder_.budget()));
    ROOST_TRY(const RuleId before, builder_.add_bytes(std::move(blanks)));
    if (is_single) return builder_.add_sequence({before, call});
    ROOST_TRY(const RuleId newline, builder_.add_literal("\n"));
    ROOST_TRY(const RuleId further, builder_.add_sequence({newline, call}));
    Rule more{.kind = RuleKind::kRepeat};
    more.children = {further};
    more.max = kCallsMax - 1;
    ROOST_TRY(const RuleId rest, builder_.add(std::move(more)));
    return builder_.add_sequence({before, call, rest});
  }

 private:
  Result<RuleId> parameters_of(const CallForm& tool) {
    ObjectRule object;
    std::vector<std::string> keys;
    const json::Value* properties = tool.parameters.find("properties");
    const json::Value* required = tool.parameters.find("required");
    const json::Value* others = tool.parameters.find("additionalProperties");
    SchemaDocument document(tool.parameters);
    if (properties != nullptr && properties->is_object()) {
      for (const auto& [name, schema] : properties->members()) {
        ROOST_TRY(const RuleId value, value_of(tool, document, name, schema));
        const bool is_required = required != nullptr && required->is_array() &&
                                 std::any_of(required->items().begin(), required->items().end(),
                                             [&](const json::Value& one) {
                                               return one.is_string() && one.as_string() == name;
                                             });
        object.properties.push_back({value, is_required});
        keys.push_back(fmt::format("<parameter={}>", name));
      }
    }
    const bool is_closed = others != nullptr && others->is_bool() && !others->as_bool();
    if (!is_closed) {
      ROOST_TRY(ByteDfa any,
                compile_regex("<parameter=[^<>\\n\\r ][^<>\\n\\r]{0,63}>", {}, builder_.budget()));
      object.other_keys = std::make_shared<const ByteDfa>(std::move(any));
      object.other_values = {text_};
    }
    object.is_unordered = object.properties.size() <= kUnorderedMax;
    Punctuation& p = object.punctuation;
    ROOST_TRY(p.open_object, builder_.add_literal(""));
    p.comma = p.open_object;
    ROOST_TRY(p.colon, builder_.add_literal("\n"));
    ROOST_TRY(p.close_object, builder_.add_literal("</function>\n</tool_call>"));
    p.close_empty_object = p.close_object;
    return builder_.add_object(std::move(object), keys);
  }

  // The text of a value and its end.
  Result<RuleId> value_of(const CallForm& tool, SchemaDocument& document, const std::string& name,
                          const json::Value& schema) {
    Result<RuleId> value = typed_value(document, name, schema);
    const bool is_size = !value && value.error().refusal == Refusal::SchemaTooLarge;
    if (value || tool.is_strict || is_size) return value;
    if (unenforced_ != nullptr)
      unenforced_->push_back(fmt::format("{}: {}", tool.name, to_string(value.error())));
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
  std::vector<std::string>* unenforced_;
  RuleId value_end_ = kNoRule, text_ = kNoRule;
};

}  // namespace

Result<Automaton> compile_calls(const std::vector<CallForm>& tools, bool is_single,
                                std::vector<std::string>* unenforced) {
  GrammarBudget budget{.refusal = Refusal::SchemaTooLarge};
  AutomatonBuilder builder(budget);
  ROOST_TRY_DO(builder.add_punctuation(true));
  ROOST_TRY(const RuleId root, CallCompiler(builder, unenforced).compile(tools, is_single));
  return builder.finish(root, limits::kValueDepthMax, Refusal::SchemaUnsatisfiable);
}

}  // namespace roost
