// NFC with the decompositions, classes and compositions of utf8proc.
#include <utf8proc.h>

#include <algorithm>
#include <tuple>
#include <vector>

#include "base/check.h"
#include "base/utf8.h"
#include "text/normalize.h"

namespace roost {
namespace {

constexpr char32_t kFirstOfInterest = 0x300;  // everything below is a starter that no mark precedes
constexpr unsigned char kLeadOfInterest =
    0xCC;  // the first byte of U+0300; larger ones lead larger code points
// The character before the final consonants. Versions of the library take it for one and lose it
// after a syllable; it composes with nothing, so a stretch that begins with it keeps it whole.
constexpr char32_t kBeforeFinalConsonants = 0x11A7;
constexpr auto kOptions = static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_COMPOSE);
constexpr int kDecompositionMax = 8;  // canonical decompositions have 4 at most

utf8proc_propval_t combining_class(utf8proc_int32_t code_point) {
  return utf8proc_get_property(code_point)->combining_class;
}

// Marks in canonical order: by class, and as they stand within a class. The library orders by
// swapping neighbours, which takes quadratic time on a long run of marks.
void order_marks(std::vector<utf8proc_int32_t>& text) {
  struct Mark {
    utf8proc_propval_t mark_class;
    size_t place;
    utf8proc_int32_t code_point;
  };
  std::vector<Mark> run;
  for (size_t i = 0; i < text.size(); ++i) {
    run.clear();
    const size_t start = i;
    for (; i < text.size() && combining_class(text[i]) != 0; ++i)
      run.push_back({combining_class(text[i]), i, text[i]});
    if (run.size() < 2) continue;
    std::sort(run.begin(), run.end(), [](const Mark& a, const Mark& b) {
      return std::tie(a.mark_class, a.place) < std::tie(b.mark_class, b.place);
    });
    for (size_t k = 0; k < run.size(); ++k) text[start + k] = run[k].code_point;
  }
}

class Normalizer {
 public:
  explicit Normalizer(std::string& out) : out_(out) {}

  void add(char32_t code_point) {
    // None of these composes with what stands before it, so a stretch can end here.
    if (code_point < kFirstOfInterest || code_point == kBeforeFinalConsonants) finish();
    stretch_.push_back(static_cast<utf8proc_int32_t>(code_point));
  }

  void finish() {
    if (stretch_.size() == 1 && stretch_[0] < static_cast<int>(kFirstOfInterest))
      append_utf8(static_cast<char32_t>(stretch_[0]), out_);
    else if (!stretch_.empty())
      compose();
    stretch_.clear();
  }

 private:
  void compose() {
    decomposed_.clear();
    for (const utf8proc_int32_t code_point : stretch_) {
      utf8proc_int32_t parts[kDecompositionMax];
      int boundary = 0;
      const utf8proc_ssize_t n =
          utf8proc_decompose_char(code_point, parts, kDecompositionMax, kOptions, &boundary);
      ROOST_CHECK(n > 0 && n <= kDecompositionMax);
      decomposed_.insert(decomposed_.end(), parts, parts + n);
    }
    order_marks(decomposed_);
    const utf8proc_ssize_t n = utf8proc_normalize_utf32(
        decomposed_.data(), static_cast<utf8proc_ssize_t>(decomposed_.size()), kOptions);
    ROOST_CHECK(n > 0);
    for (utf8proc_ssize_t i = 0; i < n; ++i)
      append_utf8(static_cast<char32_t>(decomposed_[static_cast<size_t>(i)]), out_);
  }

  std::string& out_;
  std::vector<utf8proc_int32_t> stretch_;
  std::vector<utf8proc_int32_t> decomposed_;
};

}  // namespace

std::string_view normalize_nfc(std::string_view text, std::string& storage) {
  const bool is_simple = std::none_of(text.begin(), text.end(), [](char c) {
    return static_cast<unsigned char>(c) >= kLeadOfInterest;
  });
  if (is_simple) return text;
  storage.clear();
  storage.reserve(text.size());
  Normalizer normalizer(storage);
  for (size_t at = 0; at < text.size();) {
    const Utf8Unit unit = read_utf8(text, at);
    if (unit.kind == Utf8::kWhole) {
      normalizer.add(unit.code_point);
    } else {
      normalizer.finish();
      storage.append(text, at, unit.n_bytes);
    }
    at += unit.n_bytes;
  }
  normalizer.finish();
  return storage;
}

}  // namespace roost
