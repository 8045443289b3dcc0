#include "cache/prefix_files.h"

#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <fstream>

namespace roost {
namespace {

namespace fs = std::filesystem;

class PrefixFilesTest : public ::testing::Test {
 protected:
  void SetUp() override {
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
  // Entry i of a chain: 70 more keys each.
  static PrefixFile entry(int32_t i, int32_t first_key = 0) {
    std::vector<int32_t> keys(static_cast<size_t>(70 * (i + 1)));
    for (size_t k = 0; k < keys.size(); ++k) keys[k] = first_key + static_cast<int32_t>(k);
    PrefixFile e;
    e.name = prefix_name({}, keys);
    e.position = 70 * (i + 1);
    if (i > 0) e.parent = prefix_name({}, std::span(keys).first(static_cast<size_t>(70 * i)));
    e.start = 70 * i / 64 * 64;
    e.keys.assign(keys.begin() + e.start, keys.end());
    e.bytes.resize(static_cast<size_t>(e.n_pages()) * 100 + 40, std::byte(i + 1));
    return e;
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
  open()->write(entry(0));
  open()->write(entry(1));
  const auto files = open();
  ASSERT_EQ(files->entries().size(), 2u);
  for (const int32_t i : {0, 1}) {
    const PrefixFile want = entry(i);
    const auto have = files->read(want.name);
    ASSERT_TRUE(have) << to_string(have.error());
    EXPECT_EQ(have->keys, want.keys);
    EXPECT_EQ(have->bytes, want.bytes);
    EXPECT_EQ(have->start, want.start);
    EXPECT_EQ(have->position, want.position);
    EXPECT_TRUE(have->parent == want.parent);
  }
}

TEST_F(PrefixFilesTest, a_folder_has_one_owner) {
  const auto first = open();
  const auto second = PrefixFiles::open(options());
  ASSERT_FALSE(second);
  EXPECT_EQ(second.error().refusal, Refusal::CacheFolder);
}

TEST_F(PrefixFilesTest, a_file_cut_anywhere_or_with_any_byte_turned_is_never_believed) {
  open()->write(entry(0));
  const std::string path = only_file();
  std::string good(fs::file_size(path), '\0');
  std::ifstream(path, std::ios::binary)
      .read(good.data(), static_cast<std::streamsize>(good.size()));
  const auto is_believed = [&](const std::string& bytes) {
    std::ofstream(path, std::ios::binary | std::ios::trunc) << bytes;
    const auto files = open();
    const bool is_read = files->contains(entry(0).name) && files->read(entry(0).name);
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

TEST_F(PrefixFilesTest, reading_a_damaged_file_is_refused_and_forgets_it) {
  const auto files = open();
  files->write(entry(0));
  fs::resize_file(only_file(), 30);
  const auto refused = files->read(entry(0).name);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().refusal, Refusal::CacheFile);
  EXPECT_FALSE(files->contains(entry(0).name));
}

TEST_F(PrefixFilesTest, files_of_another_model_are_skipped_and_stay) {
  open()->write(entry(0));
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
  open()->write(entry(0));
  std::ofstream(only_file() + ".temporary") << "half";
  const auto files = open();
  EXPECT_EQ(files->counts().n_entries, 1);
  EXPECT_FALSE(fs::exists(only_file() + ".temporary"));
}

TEST_F(PrefixFilesTest, the_budget_is_kept_and_chains_lose_their_ends_first) {
  PrefixFiles::Options small = options();
  small.bytes_max = 2500;
  const auto files = PrefixFiles::open(small);
  ASSERT_TRUE(files);
  for (int32_t i = 0; i < 3; ++i) EXPECT_TRUE((*files)->write(entry(i)));
  EXPECT_TRUE((*files)->write(entry(0, 5000)));
  EXPECT_LE((*files)->counts().n_bytes, 2500u);
  EXPECT_TRUE((*files)->contains(entry(0).name));
  EXPECT_FALSE((*files)->contains(entry(2).name));
  EXPECT_TRUE((*files)->contains(entry(0, 5000).name));
  PrefixFiles::Options full = options();
  full.free_min = ~uint64_t{0} / 2;  // more than any disk has
  full.folder += "-full";
  const auto none = PrefixFiles::open(full);
  ASSERT_TRUE(none);
  EXPECT_FALSE((*none)->write(entry(0)));
}

TEST_F(PrefixFilesTest, a_folder_that_cannot_be_made_is_refused) {
  std::ofstream(folder_ + "/cache") << "a file";
  const auto files = PrefixFiles::open(options());
  ASSERT_FALSE(files);
  EXPECT_EQ(files.error().refusal, Refusal::CacheFolder);
}

}  // namespace
}  // namespace roost
