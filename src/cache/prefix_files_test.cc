#include "cache/prefix_files.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "base/log.h"

namespace roost {
namespace {

namespace fs = std::filesystem;

// Files cannot grow beyond so many bytes while it lives: writes are cut there, as on a full disk.
class FullDisk {
 public:
  explicit FullDisk(rlim_t n_bytes) {
    signal(SIGXFSZ, SIG_IGN);
    getrlimit(RLIMIT_FSIZE, &before_);
    const rlimit cut = {n_bytes, before_.rlim_max};
    setrlimit(RLIMIT_FSIZE, &cut);
  }
  ~FullDisk() { setrlimit(RLIMIT_FSIZE, &before_); }

 private:
  rlimit before_{};
};

class PrefixFilesTest : public ::testing::Test {
 protected:
  void SetUp() override {
    set_log_level(LogLevel::kError);  // thousands of files are skipped
    std::string pattern = (fs::temp_directory_path() / "roost-cache-XXXXXX").string();
    ASSERT_NE(mkdtemp(pattern.data()), nullptr);
    folder_ = pattern;
  }
  void TearDown() override { fs::remove_all(folder_); }

  PrefixFiles::Options options() const {
    return {.folder = folder_ + "/cache",
            .bytes_max = 1 << 20,
            .free_min = 0,
            .identity = "a model",
            .page_bytes = 100,
            .snapshot_bytes = 40};
  }
  std::unique_ptr<PrefixFiles> open() const {
    auto files = PrefixFiles::open(options());
    EXPECT_TRUE(files) << to_string(files.error());
    return std::move(files).value();
  }
  static std::vector<int32_t> keys_of(int64_t n, int32_t first_key) {
    std::vector<int32_t> keys(static_cast<size_t>(n));
    for (size_t k = 0; k < keys.size(); ++k) keys[k] = first_key + static_cast<int32_t>(k);
    return keys;
  }
  // Entry i of a chain: 70 more keys each.
  static PrefixEntry entry(int32_t i, int32_t first_key = 0) {
    const std::vector<int32_t> keys = keys_of(70 * (i + 1), first_key);
    PrefixEntry e;
    e.name = prefix_name({}, keys, true);
    e.position = 70 * (i + 1);
    if (i > 0) e.parent = prefix_name({}, std::span(keys).first(static_cast<size_t>(70 * i)), true);
    e.start = 70 * i / 64 * 64;
    e.has_state = true;
    e.keys.assign(keys.begin() + e.start, keys.end());
    return e;
  }
  static std::vector<std::byte> bytes_of(const PrefixEntry& e) {
    return std::vector<std::byte>(static_cast<size_t>(e.n_pages()) * 100 + 40,
                                  std::byte(e.position % 251 + 1));
  }
  static bool write(PrefixFiles& files, const PrefixEntry& e) {
    const std::vector<std::byte> bytes = bytes_of(e);
    PrefixFiles::Write job;
    if (!files.plan_write(e, bytes, job)) return false;
    files.run(job);
    files.note(job);
    return job.is_written;
  }
  // Whether the file holds what it should.
  static bool read(PrefixFiles& files, const PrefixEntry& e) {
    std::vector<std::byte> bytes(bytes_of(e).size());
    PrefixFiles::Read job{.entry = e, .with_state = true, .bytes = bytes};
    files.run(job);
    files.note(job);
    EXPECT_TRUE(!job.is_good || bytes == bytes_of(e));
    return job.is_good;
  }
  static std::vector<int64_t> chain(const PrefixFiles& files, const std::vector<int32_t>& keys,
                                    int64_t n_max, bool with_state = true) {
    std::vector<const PrefixEntry*> found;
    files.chain({}, keys, n_max, with_state, found);
    std::vector<int64_t> positions;
    for (const PrefixEntry* e : found) positions.push_back(e->position);
    return positions;
  }
  std::string only_file() const {
    for (const auto& item : fs::directory_iterator(folder_ + "/cache")) {
      if (item.path().string().ends_with(".prefix")) return item.path().string();
    }
    return "";
  }
  std::string folder_;
};

TEST_F(PrefixFilesTest, what_was_written_is_there_after_a_restart) {
  write(*open(), entry(0));
  write(*open(), entry(1));
  const auto files = open();
  EXPECT_EQ(files->counts().n_entries, 2);
  for (const int32_t i : {0, 1}) {
    const PrefixEntry want = entry(i);
    EXPECT_TRUE(read(*files, want));
    const PrefixEntry& have = *files->find(want.name);
    EXPECT_EQ(have.keys, want.keys);
    EXPECT_EQ(have.start, want.start);
    EXPECT_EQ(have.position, want.position);
    EXPECT_TRUE(have.parent == want.parent);
  }
}

TEST_F(PrefixFilesTest, the_chain_of_a_prompt_ends_at_the_deepest_state_within_it) {
  const auto files = open();
  for (int32_t i = 0; i < 3; ++i) write(*files, entry(i));
  PrefixEntry pages = entry(3);  // without a state
  pages.position = 256;
  pages.has_state = false;
  pages.keys.resize(256 - 192);
  pages.name = prefix_name({}, keys_of(256, 0), false);
  pages.parent = entry(2).name;
  const std::vector<std::byte> bytes(100);
  PrefixFiles::Write job;
  ASSERT_TRUE(files->plan_write(pages, bytes, job));
  files->run(job), files->note(job);
  std::vector<int32_t> prompt = keys_of(300, 0);
  EXPECT_EQ(chain(*files, prompt, 299), (std::vector<int64_t>{70, 140, 210}));
  EXPECT_EQ(chain(*files, prompt, 299, false), (std::vector<int64_t>{70, 140, 210, 256}));
  EXPECT_EQ(chain(*files, prompt, 209), (std::vector<int64_t>{70, 140}));
  prompt[139] = 7;
  EXPECT_EQ(chain(*files, prompt, 299), (std::vector<int64_t>{70}));
  prompt[69] = 7;
  EXPECT_EQ(chain(*files, prompt, 299), std::vector<int64_t>{});
  std::vector<const PrefixEntry*> found;
  files->chain({1, 1}, keys_of(300, 0), 299, true, found);  // of another salt
  EXPECT_TRUE(found.empty());
}

TEST_F(PrefixFilesTest, a_folder_has_one_owner) {
  const auto first = open();
  const auto second = PrefixFiles::open(options());
  ASSERT_FALSE(second);
  EXPECT_EQ(second.error().refusal, Refusal::CacheFolder);
}

TEST_F(PrefixFilesTest, a_file_cut_anywhere_or_with_any_byte_turned_is_never_believed) {
  write(*open(), entry(0));
  const std::string path = only_file();
  std::string good(fs::file_size(path), '\0');
  std::ifstream(path, std::ios::binary)
      .read(good.data(), static_cast<std::streamsize>(good.size()));
  const auto is_believed = [&](const std::string& bytes) {
    std::ofstream(path, std::ios::binary | std::ios::trunc) << bytes;
    const auto files = open();
    const bool is_read = files->find(entry(0).name) != nullptr && read(*files, entry(0));
    EXPECT_EQ(files->counts().n_skipped, is_read ? 0 : 1);
    return is_read;
  };
  EXPECT_TRUE(is_believed(good));
  for (size_t n = 0; n < good.size(); n += 7) EXPECT_FALSE(is_believed(good.substr(0, n))) << n;
  for (size_t i = 0; i < good.size(); ++i) {
    std::string bad = good;
    bad[i] = static_cast<char>(bad[i] ^ 16);
    EXPECT_FALSE(is_believed(bad)) << i;
  }
}

TEST_F(PrefixFilesTest, a_file_that_is_skipped_says_why) {
  const auto files = open();
  write(*files, entry(0));
  EXPECT_TRUE(files->entry_of(only_file()));
  fs::resize_file(only_file(), 30);
  const auto refused = files->entry_of(only_file());
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().refusal, Refusal::CacheFile);
  EXPECT_EQ(refused.error().detail, only_file() + ": too short");
}

TEST_F(PrefixFilesTest, a_damaged_file_is_forgotten_with_all_that_builds_on_it) {
  const auto files = open();
  write(*files, entry(0));
  fs::resize_file(only_file(), 30);
  write(*files, entry(1));
  EXPECT_FALSE(read(*files, entry(0)));
  EXPECT_EQ(files->counts().n_skipped, 1);
  EXPECT_EQ(files->counts().n_entries, 0);
  EXPECT_EQ(files->counts().n_bytes, 0u);
  EXPECT_EQ(only_file(), "");
}

TEST_F(PrefixFilesTest, files_of_another_model_are_skipped_and_stay) {
  write(*open(), entry(0));
  PrefixFiles::Options other = options();
  other.identity = "another model";
  {
    const auto files = PrefixFiles::open(other);
    ASSERT_TRUE(files);
    EXPECT_EQ((*files)->counts().n_entries, 0);
    EXPECT_EQ((*files)->counts().n_skipped, 1);
  }
  EXPECT_EQ(open()->counts().n_entries, 1);
}

TEST_F(PrefixFilesTest, a_write_that_was_cut_off_leaves_nothing) {
  write(*open(), entry(0));
  std::ofstream(only_file() + ".temporary") << "half";
  const auto files = open();
  EXPECT_EQ(files->counts().n_entries, 1);
  EXPECT_FALSE(fs::exists(only_file() + ".temporary"));
}

TEST_F(PrefixFilesTest, a_write_cut_at_every_byte_leaves_nothing_and_the_next_one_works) {
  const auto files = open();
  write(*files, entry(0));
  const auto n_bytes = static_cast<rlim_t>(fs::file_size(only_file()));
  for (rlim_t cut = 0; cut < n_bytes; ++cut) {
    const FullDisk full(cut);
    ASSERT_FALSE(write(*files, entry(0, 5000))) << cut;
    for (const auto& item : fs::directory_iterator(folder_ + "/cache"))
      ASSERT_TRUE(item.path().string() == only_file() || item.path().filename() == "lock");
  }
  EXPECT_EQ(files->counts().n_failed_writes, static_cast<int64_t>(n_bytes));
  EXPECT_TRUE(read(*files, entry(0)));
  EXPECT_TRUE(write(*files, entry(0, 5000)));
  EXPECT_TRUE(read(*files, entry(0, 5000)));
}

// A process that writes is killed at many moments; what it leaves is whole or is not there.
TEST_F(PrefixFilesTest, killed_at_any_moment_only_the_entry_being_written_is_lost) {
  int n_lost = 0;
  for (int round = 0; round < 20; ++round) {
    const int32_t first_key = 1000 * round;
    int pipe_ends[2];
    ASSERT_EQ(pipe(pipe_ends), 0);
    const pid_t child = fork();
    if (child == 0) {
      auto files = PrefixFiles::open(options());
      if (!files) _exit(1);
      for (int32_t i = 0; i < 30; ++i) {
        if (!write(**files, entry(i, first_key))) _exit(1);
        const char told = static_cast<char>(i);
        if (::write(pipe_ends[1], &told, 1) != 1) _exit(1);
      }
      _exit(0);
    }
    close(pipe_ends[1]);
    // As soon as it has told of the first, of the second, …
    char told = 0;
    for (int i = 0; i <= round; ++i) ASSERT_EQ(::read(pipe_ends[0], &told, 1), 1);
    kill(child, SIGKILL);
    int status = 0;
    waitpid(child, &status, 0);
    while (::read(pipe_ends[0], &told, 1) == 1) continue;  // what it told before it died
    close(pipe_ends[0]);
    const auto files = open();
    EXPECT_EQ(files->counts().n_skipped, 0);
    for (int32_t i = 0; i <= told; ++i) EXPECT_TRUE(read(*files, entry(i, first_key))) << i;
    n_lost += files->find(entry(told + 1, first_key).name) == nullptr;
    for (const auto& item : fs::directory_iterator(folder_ + "/cache"))
      EXPECT_FALSE(item.path().string().ends_with(".temporary"));
  }
  EXPECT_GT(n_lost, 0);
}

TEST_F(PrefixFilesTest, the_budget_is_kept_and_chains_lose_their_ends_first) {
  PrefixFiles::Options small = options();
  small.bytes_max = 2500;
  const auto files = std::move(PrefixFiles::open(small)).value();
  for (int32_t i = 0; i < 3; ++i) EXPECT_TRUE(write(*files, entry(i)));
  EXPECT_TRUE(write(*files, entry(0, 5000)));
  EXPECT_LE(files->counts().n_bytes, 2500u);
  EXPECT_NE(files->find(entry(0).name), nullptr);
  EXPECT_EQ(files->find(entry(2).name), nullptr);
  EXPECT_NE(files->find(entry(0, 5000).name), nullptr);
  uint64_t n_bytes = 0;
  for (const auto& item : fs::directory_iterator(folder_ + "/cache"))
    n_bytes += item.path().string().ends_with(".prefix") ? item.file_size() : 0;
  EXPECT_EQ(n_bytes, files->counts().n_bytes);
}

TEST_F(PrefixFilesTest, skipped_files_count_and_are_the_first_to_go) {
  write(*open(), entry(0));
  PrefixFiles::Options other = options();
  other.identity = "another model";
  other.bytes_max = 1500;
  const auto files = std::move(PrefixFiles::open(other)).value();
  EXPECT_GT(files->counts().n_bytes, 0u);
  EXPECT_TRUE(write(*files, entry(0, 5000)));
  EXPECT_TRUE(write(*files, entry(0, 6000)));
  EXPECT_LE(files->counts().n_bytes, 1500u);
  EXPECT_EQ(files->counts().n_entries, 2);
  EXPECT_EQ(files->counts().n_removed, 1);
}

TEST_F(PrefixFilesTest, some_of_the_disk_stays_free) {
  PrefixFiles::Options full = options();
  full.free_min = ~uint64_t{0} / 2;  // more than any disk has
  const auto files = std::move(PrefixFiles::open(full)).value();
  EXPECT_FALSE(write(*files, entry(0)));
  EXPECT_EQ(files->counts().n_failed_writes, 1);
}

TEST_F(PrefixFilesTest, a_folder_that_cannot_be_made_is_refused) {
  std::ofstream(folder_ + "/cache") << "a file";
  const auto files = PrefixFiles::open(options());
  ASSERT_FALSE(files);
  EXPECT_EQ(files.error().refusal, Refusal::CacheFolder);
}

}  // namespace
}  // namespace roost
