#include "text/template_print.h"

#include <algorithm>
#include <cmath>

#include <fmt/core.h>

#include "base/utf8.h"
#include "text/python_text.h"
#include "text/template_sort.h"

namespace roost::jinja {
namespace {

// The steps and the size are checked at every value: values may be shared, so that a small one has
// a huge text.
Result<void> charge(Heap& heap, const std::string& out) {
  ROOST_TRY_DO(heap.spend(1));
  return heap.check_text_size(out.size());
}

Result<void> append_repr_of(Heap& heap, const Value& value, std::string& out);

Result<void> append_items(Heap& heap, const std::vector<Value>& items, std::string& out) {
  for (size_t i = 0; i < items.size(); ++i) {
    if (i > 0) out += ", ";
    ROOST_TRY_DO(append_repr_of(heap, items[i], out));
  }
  return {};
}

Result<void> append_dict(Heap& heap, const DictObject& dict, std::string& out) {
  out += '{';
  for (size_t i = 0; i < dict.entries.size(); ++i) {
    if (i > 0) out += ", ";
    ROOST_TRY_DO(append_repr_of(heap, dict.entries[i].first, out));
    out += ": ";
    ROOST_TRY_DO(append_repr_of(heap, dict.entries[i].second, out));
  }
  out += '}';
  return {};
}

Result<void> append_view(Heap& heap, const DictViewObject& view, std::string& out) {
  using What = DictViewObject::What;
  const std::string_view names[] = {"dict_items([", "dict_keys([", "dict_values(["};
  out += names[static_cast<size_t>(view.what)];
  bool is_first = true;
  for (const Entry& entry : view.dict->entries) {
    if (!is_first) out += ", ";
    is_first = false;
    if (view.what == What::kItems) out += '(';
    if (view.what != What::kValues) ROOST_TRY_DO(append_repr_of(heap, entry.first, out));
    if (view.what == What::kItems) out += ", ";
    if (view.what != What::kKeys) ROOST_TRY_DO(append_repr_of(heap, entry.second, out));
    if (view.what == What::kItems) out += ')';
  }
  out += "])";
  return {};
}

void append_range(const RangeObject& range, std::string& out) {
  out += fmt::format("range({}, {}", range.start, range.stop);
  if (range.step != 1) out += fmt::format(", {}", range.step);
  out += ')';
}

// What str() and repr() have in common: everything but strings and undefined values.
Result<void> append_other(Heap& heap, const Value& value, std::string& out) {
  switch (value.kind()) {
    case Kind::kNone:
      out += "None";
      return {};
    case Kind::kBool:
      out += value.as_int() != 0 ? "True" : "False";
      return {};
    case Kind::kInt:
      out += fmt::format("{}", value.as_int());
      return {};
    case Kind::kBigInt:
      out += value.text();
      return {};
    case Kind::kFloat:
      out += float_repr(value.as_float());
      return {};
    case Kind::kList:
      out += '[';
      ROOST_TRY_DO(append_items(heap, value.items(), out));
      out += ']';
      return {};
    case Kind::kTuple:
      out += '(';
      ROOST_TRY_DO(append_items(heap, value.items(), out));
      out += value.items().size() == 1 ? ",)" : ")";
      return {};
    case Kind::kDict:
      return append_dict(heap, value.dict(), out);
    case Kind::kDictView:
      return append_view(heap, value.view(), out);
    case Kind::kRange:
      append_range(value.range(), out);
      return {};
    default:
      // Python shows an address or other inner things.
      return refuse(fmt::format("a {} cannot be printed", type_name(value)));
  }
}

Result<void> append_repr_of(Heap& heap, const Value& value, std::string& out) {
  ROOST_TRY_DO(charge(heap, out));
  if (value.is(Kind::kUndefined)) {
    out += "Undefined";
    return {};
  }
  if (!value.is_string()) return append_other(heap, value, out);
  ROOST_TRY_DO(heap.spend_bytes(value.text().size()));
  if (value.is_markup()) out += "Markup(";
  append_repr(value.text(), out);
  if (value.is_markup()) out += ')';
  return {};
}

class JsonWriter {
 public:
  JsonWriter(Heap& heap, const JsonStyle& style) : heap_(heap), style_(style) {}
  Result<void> write(const Value& value);
  std::string take() { return std::move(out_); }

 private:
  Result<void> write_items(const std::vector<Value>& items);
  Result<void> write_dict(const DictObject& dict);
  Result<std::vector<uint32_t>> order_of(const DictObject& dict);
  Result<void> write_key(const Value& key);
  Result<void> write_text(std::string_view text);
  void write_escaped(std::string_view text);
  void write_float(double d);
  Result<void> open(char bracket);
  Result<void> separate();
  Result<void> close(char bracket);
  Result<void> new_line();

  Heap& heap_;
  const JsonStyle& style_;
  size_t level_ = 0;
  std::string out_;
};

Result<void> JsonWriter::new_line() {
  if (!style_.indent) return {};
  const size_t n_bytes = level_ * style_.indent->size() + 1;
  ROOST_TRY_DO(heap_.check_text_size(out_.size() + n_bytes));
  ROOST_TRY_DO(heap_.spend_bytes(n_bytes));
  out_ += '\n';
  for (size_t i = 0; i < level_; ++i) out_ += *style_.indent;
  return {};
}

Result<void> JsonWriter::open(char bracket) {
  out_ += bracket;
  ++level_;
  return new_line();
}

Result<void> JsonWriter::separate() {
  out_ += style_.item_separator;
  return new_line();
}

Result<void> JsonWriter::close(char bracket) {
  --level_;
  ROOST_TRY_DO(new_line());
  out_ += bracket;
  return {};
}

void JsonWriter::write_escaped(std::string_view text) {
  for (size_t at = 0; at < text.size();) {
    const Utf8Unit unit = read_utf8(text, at);
    const char32_t c = unit.code_point;
    if (c == '"' || c == '\\') {
      out_ += '\\';
      out_ += static_cast<char>(c);
    } else if (unit.kind == Utf8::kWhole && c < 0x20) {
      const std::string_view letters = "\bb\tt\nn\ff\rr";
      const size_t place = letters.find(static_cast<char>(c));
      if (place != std::string_view::npos)
        out_ += {'\\', letters[place + 1]};
      else
        out_ += fmt::format("\\u{:04x}", static_cast<uint32_t>(c));
    } else if (!style_.is_ascii_only || c < 0x80) {
      out_ += text.substr(at, unit.n_bytes);
    } else if (c < 0x10000) {
      out_ += fmt::format("\\u{:04x}", static_cast<uint32_t>(c));
    } else {
      const auto offset = static_cast<uint32_t>(c) - 0x10000;
      out_ += fmt::format("\\u{:04x}\\u{:04x}", 0xD800 + (offset >> 10), 0xDC00 + (offset & 0x3FF));
    }
    at += unit.n_bytes;
  }
}

Result<void> JsonWriter::write_text(std::string_view text) {
  ROOST_TRY_DO(heap_.spend_bytes(text.size()));
  out_ += '"';
  write_escaped(text);
  out_ += '"';
  return {};
}

void JsonWriter::write_float(double d) {
  if (std::isnan(d))
    out_ += "NaN";
  else if (std::isinf(d))
    out_ += d < 0 ? "-Infinity" : "Infinity";
  else
    out_ += float_repr(d);
}

Result<void> JsonWriter::write_key(const Value& key) {
  switch (key.kind()) {
    case Kind::kString:
      return write_text(key.text());
    case Kind::kNone:
    case Kind::kBool:
    case Kind::kInt:
    case Kind::kBigInt:
    case Kind::kFloat: {
      out_ += '"';
      ROOST_TRY_DO(write(key));
      out_ += '"';
      return {};
    }
    default:
      return refuse(fmt::format("a key of type {} in JSON", type_name(key)));
  }
}

// Places of the entries in the order in which they are written.
Result<std::vector<uint32_t>> JsonWriter::order_of(const DictObject& dict) {
  std::vector<uint32_t> order;
  for (uint32_t i = 0; i < dict.entries.size(); ++i) order.push_back(i);
  if (!style_.sort_keys) return order;
  if (dict.by_text.size() == order.size()) return dict.by_text;
  ROOST_TRY_DO(merge_sort(order, [&](uint32_t a, uint32_t b) -> Result<bool> {
    ROOST_TRY(const auto key_order, compare(heap_, dict.entries[a].first, dict.entries[b].first));
    return key_order < 0;
  }));
  return order;
}

Result<void> JsonWriter::write_dict(const DictObject& dict) {
  if (dict.entries.empty()) {
    out_ += "{}";
    return {};
  }
  ROOST_TRY(const std::vector<uint32_t> order, order_of(dict));
  ROOST_TRY_DO(open('{'));
  for (size_t i = 0; i < order.size(); ++i) {
    if (i > 0) ROOST_TRY_DO(separate());
    const Entry& entry = dict.entries[order[i]];
    ROOST_TRY_DO(write_key(entry.first));
    out_ += style_.key_separator;
    ROOST_TRY_DO(write(entry.second));
  }
  return close('}');
}

Result<void> JsonWriter::write_items(const std::vector<Value>& items) {
  if (items.empty()) {
    out_ += "[]";
    return {};
  }
  ROOST_TRY_DO(open('['));
  for (size_t i = 0; i < items.size(); ++i) {
    if (i > 0) ROOST_TRY_DO(separate());
    ROOST_TRY_DO(write(items[i]));
  }
  return close(']');
}

Result<void> JsonWriter::write(const Value& value) {
  ROOST_TRY_DO(charge(heap_, out_));
  switch (value.kind()) {
    case Kind::kNone:
      out_ += "null";
      return {};
    case Kind::kBool:
      out_ += value.as_int() != 0 ? "true" : "false";
      return {};
    case Kind::kInt:
      out_ += fmt::format("{}", value.as_int());
      return {};
    case Kind::kBigInt:
      out_ += value.text();
      return {};
    case Kind::kFloat:
      write_float(value.as_float());
      return {};
    case Kind::kString:
      return write_text(value.text());
    case Kind::kList:
    case Kind::kTuple:
      return write_items(value.items());
    case Kind::kDict:
      return write_dict(value.dict());
    default:
      return refuse(fmt::format("a value of type {} is no JSON", type_name(value)));
  }
}

}  // namespace

Result<void> append_text(Heap& heap, const Value& value, std::string& out) {
  ROOST_TRY_DO(charge(heap, out));
  if (value.is(Kind::kUndefined)) return {};
  if (!value.is_string()) return append_other(heap, value, out);
  ROOST_TRY_DO(heap.check_text_size(out.size() + value.text().size()));
  ROOST_TRY_DO(heap.spend_bytes(value.text().size()));
  out += value.text();
  return {};
}

Result<std::string> to_text(Heap& heap, const Value& value) {
  std::string out;
  ROOST_TRY_DO(append_text(heap, value, out));
  return out;
}

Result<std::string> to_json(Heap& heap, const Value& value, const JsonStyle& style) {
  JsonWriter writer(heap, style);
  ROOST_TRY_DO(writer.write(value));
  return writer.take();
}

}  // namespace roost::jinja
