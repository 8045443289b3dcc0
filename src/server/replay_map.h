// The tokens of past replies, found again by what they were rendered to (docs/SERVER.md, replies
// that come back).
#pragma once

#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "base/result.h"
#include "server/line_file.h"
#include "text/tokenizer.h"

namespace roost {

// A reply as it was drawn: in its turn the text `lead` came from the prompt, then these tokens.
struct Replay {
  std::string lead;
  std::vector<Token> tokens;
};

// Any thread. The reply that was looked for or kept last stays longest.
class ReplayMap {
 public:
  // n_bytes_max: in memory; a file of them takes twice that at most.
  explicit ReplayMap(size_t n_replies_max = 4096, size_t n_bytes_max = size_t{64} << 20)
      : n_replies_max_(n_replies_max), n_bytes_max_(n_bytes_max) {}

  // owner: only the same one finds it again. before: a digest of what stands in front of the
  // reply's turn, so that equal words elsewhere are not taken for it. turn: as the template prints
  // it, without the header and the end of the turn.
  void put(const std::string& owner, std::string_view before, std::string_view turn, Replay replay);
  std::optional<Replay> find(const std::string& owner, std::string_view before,
                             std::string_view turn);

  // Takes in what the file holds, and keeps it and all later replies there, for the process behind
  // this one. identity: one line, of what gives tokens their meaning, n_tokens of them; what a file
  // of another one holds is dropped, and so is what is damaged. Refuses file.write.
  Result<void> keep_in(const std::string& path, const std::string& identity, int64_t n_tokens);

 private:
  struct Kept {
    std::string key;
    Replay replay;
    size_t n_bytes() const;
    std::string line() const;  // of the file
  };

  void insert(Kept kept);
  void drop(std::list<Kept>::iterator place);
  static std::optional<Kept> kept_of(const json::Value& value, int64_t n_tokens);
  void take_in(const std::string& path, const std::string& identity, int64_t n_tokens);
  void write_line(const std::string& line);
  Result<void> rewrite_file();

  const size_t n_replies_max_, n_bytes_max_;
  std::mutex mutex_;
  std::list<Kept> kept_;  // the one used last is the first
  std::map<std::string, std::list<Kept>::iterator> places_;
  size_t n_bytes_ = 0;
  std::string path_, identity_;
  std::unique_ptr<LineFile> file_;  // null: nothing outlasts the process
  size_t n_file_bytes_ = 0;
};

}  // namespace roost
