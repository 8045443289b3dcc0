// Rendering a conversation: template variables, placeholders for turns that templates refuse, and
// the guard that keeps request text from turning into control tokens.
#include "server/prompt.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <optional>

#include "base/hash.h"
#include "text/reply_parser.h"

namespace roost {

namespace {

constexpr std::string_view kTurnStart = "<|im_start|>";
constexpr std::string_view kTurnEnd = "<|im_end|>\n";
constexpr std::string_view kTurnEndMark = "<|im_end|>";
constexpr std::string_view kUserHeader = "<|im_start|>user\n";
constexpr std::string_view kReplyHeader = "<|im_start|>assistant\n";
constexpr std::string_view kPlaceholderUser = "first user";

// U+FDD0 to U+FDEF never stand for a character: marks are taken from them.
constexpr int kMarksMax = 32;
std::string mark_character(int i) {
  return {'\xEF', '\xB7', static_cast<char>(0x90 + i)};
}

void note_marks(std::string_view text, std::vector<bool>& is_used) {
  for (size_t at = text.find("\xEF\xB7"); at != std::string_view::npos;
       at = text.find("\xEF\xB7", at + 1)) {
    if (at + 2 >= text.size()) return;
    const int i = static_cast<unsigned char>(text[at + 2]) - 0x90;
    if (i >= 0 && i < kMarksMax) is_used[static_cast<size_t>(i)] = true;
  }
}

void note_marks(const json::Value& value, std::vector<bool>& is_used) {
  if (value.is_string()) note_marks(value.as_string(), is_used);
  if (value.is_array())
    for (const json::Value& item : value.items()) note_marks(item, is_used);
  if (value.is_object()) {
    for (const json::Member& member : value.members()) {
      note_marks(member.first, is_used);
      note_marks(member.second, is_used);
    }
  }
}

// How many bytes of an added token come before its closing punctuation: the place of the mark.
size_t letters_end(std::string_view added) {
  size_t n = added.size();
  while (n > 0 && !std::isalnum(static_cast<unsigned char>(added[n - 1]))) --n;
  return n;
}

struct Marks {
  std::string guard, place;
};

// Two characters that stand nowhere in the request.
Result<Marks> choose_marks(const json::Value& variables, const json::Value& late) {
  std::vector<bool> is_used(kMarksMax, false);
  note_marks(variables, is_used);
  note_marks(late, is_used);
  std::vector<std::string> free;
  for (int i = 0; i < kMarksMax && free.size() < 2; ++i)
    if (!is_used[static_cast<size_t>(i)]) free.push_back(mark_character(i));
  if (free.size() < 2)
    return Error{Refusal::FieldValue, "messages: every noncharacter from U+FDD0 to U+FDEF is used"};
  return Marks{free[0], free[1]};
}

class Guard {
 public:
  Guard(const std::vector<std::string>& added_tokens, std::string mark)
      : added_(added_tokens), mark_(std::move(mark)) {}

  std::string text(const std::string& s) const { return guard_text(s, added_, mark_); }

  void apply(json::Value& value) const {
    if (value.is_string()) value = json::Value::string(text(value.as_string()));
    if (value.is_array())
      for (json::Value& item : value.items()) apply(item);
    if (value.is_object()) {
      for (json::Member& member : value.members()) {
        member.first = text(member.first);
        apply(member.second);
      }
    }
  }

 private:
  const std::vector<std::string>& added_;
  std::string mark_;
};

json::Value message_object(std::string_view role, const std::string& content) {
  json::Value out = json::Value::object();
  out.set("role", json::Value::string(std::string(role)));
  out.set("content", json::Value::string(content));
  return out;
}

json::Value call_object(const PastCall& call) {
  json::Value function = json::Value::object();
  function.set("name", json::Value::string(call.name));
  function.set("arguments", call.arguments);
  json::Value out = json::Value::object();
  if (!call.id.empty()) out.set("id", json::Value::string(call.id));
  out.set("type", json::Value::string("function"));
  out.set("function", std::move(function));
  return out;
}

// The texts of a turn, for marks that must stand in none of them.
json::Value last_as_value(const Message& message) {
  return json::Value::array(
      {json::Value::string(message.text), json::Value::string(message.reasoning)});
}

json::Value turn_object(const Message& message) {
  switch (message.role) {
    case Role::kSystem:
      return message_object("system", message.text);
    case Role::kUser:
      return message_object("user", message.text);
    case Role::kTool: {
      json::Value out = message_object("tool", message.text);
      if (!message.call_id.empty()) out.set("tool_call_id", json::Value::string(message.call_id));
      return out;
    }
    case Role::kAssistant: {
      json::Value out = message_object("assistant", message.text);
      // Always a string, so that the template leaves the content alone.
      out.set("reasoning_content", json::Value::string(message.reasoning));
      if (!message.calls.empty()) {
        json::Value calls = json::Value::array();
        for (const PastCall& call : message.calls) calls.push(call_object(call));
        out.set("tool_calls", std::move(calls));
      }
      return out;
    }
  }
  return {};
}

// The turns as the template takes them, and what stands for a placeholder.
struct Turns {
  json::Value messages = json::Value::array();
  json::Value late_systems = json::Value::array();  // texts of placeholders 0, 1, …
  std::vector<size_t> late_idx;                     // their indexes in messages
  std::optional<size_t> user_idx;  // where a user turn was put in that nobody wrote
};

Turns arrange_turns(const std::vector<Message>& messages) {
  Turns out;
  size_t n_leading = 0;
  std::string leading;
  while (n_leading < messages.size() && messages[n_leading].role == Role::kSystem) {
    if (n_leading > 0) leading += "\n\n";
    leading += messages[n_leading++].text;
  }
  if (n_leading > 0) out.messages.push(message_object("system", leading));
  const auto is_user = [](const Message& m) { return m.role == Role::kUser; };
  if (std::none_of(messages.begin(), messages.end(), is_user)) {
    out.user_idx = out.messages.items().size();
    out.messages.push(message_object("user", ""));
  }
  for (size_t i = n_leading; i < messages.size(); ++i) {
    const Message& message = messages[i];
    if (message.role == Role::kSystem) {
      out.late_idx.push_back(out.messages.items().size());
      out.late_systems.push(json::Value::string(message.text));
      out.messages.push(message_object("assistant", ""));
      out.messages.items().back().set("reasoning_content", json::Value::string(""));
    } else {
      out.messages.push(turn_object(message));
    }
  }
  return out;
}

std::string placeholder(const std::string& place, std::string_view name) {
  return place + std::string(name) + place;
}

std::string_view trimmed(std::string_view text) {
  constexpr std::string_view kBlanks = " \t\n\r\f\v";
  const size_t first = text.find_first_not_of(kBlanks);
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(kBlanks) - first + 1);
}

// Replaces the turn that holds `name` by `turn`. Refuses when the template does not print turns in
// the family's form.
Result<void> replace_turn(std::string& text, const std::string& name, std::string_view turn) {
  const size_t at = text.find(name);
  const size_t start = at == std::string::npos ? at : text.rfind(kTurnStart, at);
  const size_t end = at == std::string::npos ? at : text.find(kTurnEnd, at);
  if (start == std::string::npos || end == std::string::npos)
    return Error{Refusal::RequestTemplate,
                 "the template prints no turns in which a late system text could stand"};
  text.replace(start, end + kTurnEnd.size() - start, turn);
  return {};
}

// A conversation on its way to one text.
struct Rendering {
  const ServedModel& model;
  const ChatRequest& request;
  int64_t unix_seconds;
  Marks marks;

  Result<std::string> render(const std::vector<Message>& messages, std::optional<bool> thinking,
                             bool has_header);
  Result<std::string> render_continued();
  std::string guarded(const std::string& text) const {
    return guard_text(text, model.added_tokens, marks.guard);
  }
};

Result<std::string> Rendering::render(const std::vector<Message>& messages,
                                      std::optional<bool> thinking, bool has_header) {
  Turns turns = arrange_turns(messages);
  json::Value variables = json::Value::object();
  variables.set("messages", std::move(turns.messages));
  json::Value tools = json::Value::array();
  for (const Tool& tool : request.tools) tools.push(tool.printed);
  variables.set("tools", request.tools.empty() ? json::Value() : std::move(tools));
  for (const json::Member& member : request.generation.template_members)
    variables.set(member.first, member.second);
  if (!request.messages.empty()) turns.late_systems.push(last_as_value(request.messages.back()));
  ROOST_TRY(marks, choose_marks(variables, turns.late_systems));
  if (!request.messages.empty()) turns.late_systems.items().pop_back();

  const Guard guard(model.added_tokens, marks.guard);
  for (json::Member& member : variables.members()) guard.apply(member.second);
  guard.apply(turns.late_systems);
  const std::vector<json::Value>& late = turns.late_systems.items();

  std::vector<json::Value>& turns_of = variables.members()[0].second.items();
  for (size_t i = 0; i < turns.late_idx.size(); ++i)
    turns_of[turns.late_idx[i]].set(
        "content", json::Value::string(placeholder(marks.place, fmt::format("system {}", i))));
  if (turns.user_idx)
    turns_of[*turns.user_idx].set("content",
                                  json::Value::string(placeholder(marks.place, kPlaceholderUser)));

  variables.set("add_generation_prompt", json::Value::boolean(has_header));
  if (thinking) variables.set("enable_thinking", json::Value::boolean(*thinking));

  ROOST_TRY(std::string text, model.chat_template.render(variables, unix_seconds));
  for (size_t i = 0; i < late.size(); ++i) {
    const std::string turn =
        fmt::format("{}system\n{}{}", kTurnStart, trimmed(late[i].as_string()), kTurnEnd);
    ROOST_TRY_DO(replace_turn(text, placeholder(marks.place, fmt::format("system {}", i)), turn));
  }
  if (turns.user_idx)
    ROOST_TRY_DO(replace_turn(text, placeholder(marks.place, kPlaceholderUser), ""));
  return text;
}

// The prompt ends inside the assistant's last turn, and the reply goes on with it.
Result<std::string> Rendering::render_continued() {
  const Message& last = request.messages.back();
  if (!last.calls.empty()) {
    ROOST_TRY(std::string text, render(request.messages, request.generation.thinking, false));
    const size_t end = text.rfind(kTurnEnd);
    if (end != std::string::npos && end + kTurnEnd.size() == text.size()) text.resize(end);
    return text;
  }
  const std::vector<Message> before(request.messages.begin(), request.messages.end() - 1);
  const bool has_reasoning = !last.reasoning.empty();
  ROOST_TRY(std::string text, render(before, has_reasoning, true));
  const bool is_open = prompt_starts_in_reasoning(text);
  if (has_reasoning) {
    if (!is_open) text += "<think>\n";
    text += guarded(last.reasoning);
    if (!last.text.empty()) text += "\n</think>\n\n";
  } else if (is_open) {
    text += "\n</think>\n\n";
  }
  return text += guarded(last.text);
}

}  // namespace

std::string guard_text(const std::string& text, const std::vector<std::string>& added_tokens,
                       const std::string& mark) {
  std::vector<size_t> cuts;
  for (const std::string& added : added_tokens) {
    const size_t n_letters = letters_end(added);
    const size_t cut = n_letters == 0 || n_letters == added.size() ? added.size() - 1 : n_letters;
    for (size_t at = text.find(added); at != std::string::npos; at = text.find(added, at + 1))
      cuts.push_back(at + cut);
    // The end of the text may begin an added token that the template's own bytes would complete.
    for (size_t n = added.size() - 1; n >= cut; --n) {
      if (n <= text.size() && text.compare(text.size() - n, n, added, 0, n) == 0)
        cuts.push_back(text.size() - n + cut);
      if (n == 0) break;
    }
  }
  if (cuts.empty()) return text;
  std::sort(cuts.begin(), cuts.end());
  cuts.erase(std::unique(cuts.begin(), cuts.end()), cuts.end());
  std::string out;
  size_t done = 0;
  for (const size_t cut : cuts) {
    out.append(text, done, cut - done).append(mark);
    done = cut;
  }
  return out.append(text, done, text.size() - done);
}

namespace {

// Encodes the pieces between guards one by one.
void encode_guarded(const Tokenizer& tokenizer, std::string_view text, const std::string& guard,
                    Prompt& out) {
  size_t done = 0;
  while (done <= text.size()) {
    const size_t next = std::min(text.find(guard, done), text.size());
    const std::string_view piece = text.substr(done, next - done);
    out.text += piece;
    const std::vector<Token> ids = tokenizer.encode(piece);
    out.tokens.insert(out.tokens.end(), ids.begin(), ids.end());
    done = next + guard.size();
  }
}

std::string without_guards(std::string_view text, const std::string& guard) {
  std::string out;
  for (size_t done = 0; done <= text.size();) {
    const size_t next = std::min(text.find(guard, done), text.size());
    out += text.substr(done, next - done);
    done = next + guard.size();
  }
  return out;
}

// Turns of a rendered conversation, one by one: the marks that begin and end them are tokens of
// their own, so a turn has the same tokens wherever it is cut off from the others.
class TurnEncoder {
 public:
  TurnEncoder(const ServedModel& model, const std::string& guard, const FindReplay& find_replay,
              Prompt& out)
      : model_(model), guard_(guard), find_replay_(find_replay), out_(out) {}

  void encode(std::string_view text) {
    size_t at = std::min(text.find(kTurnStart), text.size());
    plain(text.substr(0, at));
    while (at < text.size()) {
      const size_t next = std::min(text.find(kTurnStart, at + 1), text.size());
      turn(text.substr(at, next - at));
      at = next;
    }
    note_places();
  }

 private:
  void plain(std::string_view text) { encode_guarded(model_.tokenizer, text, guard_, out_); }

  void turn(std::string_view text) {
    add_to_digest();
    starts_.push_back(static_cast<int64_t>(out_.tokens.size()));
    const bool is_question = text.starts_with(kUserHeader) &&
                             !text.substr(kUserHeader.size()).starts_with("<tool_response>");
    if (is_question) question_ = starts_.size() - 1;
    if (!text.starts_with(kReplyHeader)) return plain(text);
    const size_t end = text.find(kTurnEndMark);
    if (end == std::string_view::npos) {
      out_.lead = without_guards(text.substr(kReplyHeader.size()), guard_);
      out_.before_reply = digest_;
      return plain(text);
    }
    const std::string_view body = text.substr(kReplyHeader.size(), end - kReplyHeader.size());
    const std::string shown = without_guards(body, guard_);
    const std::optional<Replay> replay = find_replay_ ? find_replay_(digest_, shown) : std::nullopt;
    if (!replay || !body.starts_with(replay->lead)) return plain(text);
    plain(text.substr(0, kReplyHeader.size() + replay->lead.size()));
    out_.text += shown.substr(replay->lead.size());
    const auto from = static_cast<int64_t>(out_.tokens.size());
    out_.tokens.insert(out_.tokens.end(), replay->tokens.begin(), replay->tokens.end());
    out_.replayed.emplace_back(from, static_cast<int64_t>(out_.tokens.size()));
    plain(text.substr(end));
  }

  // Of the digest so far and the tokens since then: no token is read twice.
  void add_to_digest() {
    const size_t from = starts_.empty() ? 0 : static_cast<size_t>(starts_.back());
    const std::span<const Token> tokens(out_.tokens);
    digest_ += sha256_hex(std::as_bytes(tokens.subspan(from)));
    digest_ = sha256_hex(std::as_bytes(std::span(digest_)));
  }

  void note_places() {
    std::vector<size_t> turns;
    if (starts_.size() > 1) turns.push_back(1);
    if (question_) turns.insert(turns.end(), {*question_, *question_ + 1});
    if (starts_.size() > 1) turns.insert(turns.end(), {starts_.size() - 2, starts_.size() - 1});
    std::sort(turns.begin(), turns.end());
    turns.erase(std::unique(turns.begin(), turns.end()), turns.end());
    for (const size_t i : turns)
      if (i < starts_.size() && starts_[i] > 0) out_.places.push_back(starts_[i]);
  }

  const ServedModel& model_;
  const std::string& guard_;
  const FindReplay& find_replay_;
  Prompt& out_;
  std::vector<int64_t> starts_;     // tokens before each turn
  std::string digest_;              // of all tokens before the turn in work
  std::optional<size_t> question_;  // the last turn that the user wrote
};

}  // namespace

int64_t Prompt::n_replayed() const {
  int64_t n = 0;
  for (const auto& [from, to] : replayed) n += to - from;
  return n;
}

Result<Prompt> build_prompt(const ServedModel& model, const ChatRequest& request,
                            int64_t unix_seconds, const FindReplay& find_replay) {
  Rendering rendering{model, request, unix_seconds, {}};
  const std::optional<bool> thinking =
      request.generation.thinking ? request.generation.thinking : model.thinking;
  const Message* last = request.messages.empty() ? nullptr : &request.messages.back();
  const bool is_continued = request.continues_last && last != nullptr &&
                            !(last->text.empty() && last->reasoning.empty() && last->calls.empty());
  Prompt out;
  std::string text;
  if (is_continued) {
    ROOST_TRY(text, rendering.render_continued());
    out.starts_in_reasoning = last->calls.empty() && last->text.empty() && !last->reasoning.empty();
  } else {
    // An empty last turn of the assistant says nothing: the reply begins a turn of its own.
    std::vector<Message> messages = request.messages;
    if (request.continues_last) messages.pop_back();
    ROOST_TRY(text, rendering.render(messages, thinking, request.has_header));
    out.starts_in_reasoning = prompt_starts_in_reasoning(text);
  }
  TurnEncoder(model, rendering.marks.guard, find_replay, out).encode(text);
  return out;
}

Result<std::string> render_reply(const ServedModel& model, const ChatRequest& request,
                                 const Message& reply, int64_t unix_seconds) {
  // How a turn is printed depends on what follows the last question, not on what comes before it.
  ChatRequest short_request;
  short_request.generation.template_members = request.generation.template_members;
  short_request.messages.resize(2);
  short_request.messages[1] = reply;
  Rendering rendering{model, short_request, unix_seconds, {}};
  const std::optional<bool> thinking =
      request.generation.thinking ? request.generation.thinking : model.thinking;
  ROOST_TRY(const std::string text, rendering.render(short_request.messages, thinking, false));
  const size_t begin = text.rfind(kReplyHeader);
  if (begin == std::string::npos) return std::string();
  const size_t body = begin + kReplyHeader.size();
  const size_t end = text.find(kTurnEndMark, body);
  if (end == std::string::npos) return std::string();
  return without_guards(std::string_view(text).substr(body, end - body), rendering.marks.guard);
}

Result<std::vector<Token>> encode_as_text(const ServedModel& model, const std::string& text) {
  ROOST_TRY(const Marks marks, choose_marks(json::Value::string(text), json::Value()));
  Prompt out;
  encode_guarded(model.tokenizer, guard_text(text, model.added_tokens, marks.guard), marks.guard,
                 out);
  return out.tokens;
}

Result<void> check_prompt_fits(int64_t n_prompt, int64_t context_max) {
  if (n_prompt < context_max) return {};
  return Error{Refusal::RequestTooLong,
               fmt::format("{} tokens > {} maximum; this model's maximum context length is {} "
                           "tokens",
                           n_prompt, context_max - 1, context_max)};
}

}  // namespace roost
