#include "base/file.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cstring>
#include <filesystem>
#include <fstream>

namespace roost {
namespace {

// A folder of the test's own that ends with it.
class FileTest : public testing::Test {
 protected:
  void SetUp() override {
    char pattern[] = "/tmp/roost_file_test.XXXXXX";
    ASSERT_NE(mkdtemp(pattern), nullptr);
    folder_ = pattern;
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  std::string make(const std::string& name, const std::string& bytes) const {
    std::ofstream(path(name), std::ios::binary) << bytes;
    return path(name);
  }
  std::string path(const std::string& name) const { return folder_ + "/" + name; }

  std::string folder_;
};

std::string bytes_of(const MappedFile& file) {
  return {reinterpret_cast<const char*>(file.bytes().data()), file.bytes().size()};
}

TEST_F(FileTest, is_read_and_mapped_byte_for_byte) {
  std::string bytes;
  for (int i = 0; i < 70000; ++i) bytes += static_cast<char>(i * 7);
  const std::string file = make("a", bytes);
  EXPECT_EQ(*read_file(file, bytes.size()), bytes);
  Result<MappedFile> mapped = MappedFile::open(file);
  ASSERT_TRUE(mapped);
  EXPECT_EQ(bytes_of(*mapped), bytes);
  const MappedFile moved = std::move(mapped).value();
  EXPECT_EQ(bytes_of(moved), bytes);
}

TEST_F(FileTest, once_resident_does_not_see_what_happens_to_the_file) {
  std::string bytes(20'000'000, '\0');
  for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<char>(i * 7 + i / 4096);
  const std::string file = make("a", bytes);
  const Result<MappedFile> mapped = MappedFile::open(file);
  ASSERT_TRUE(mapped);
  const std::byte* const data = mapped->bytes().data();
  ASSERT_TRUE(mapped->make_resident());
  EXPECT_EQ(mapped->bytes().data(), data);
  make("a", "another");
  EXPECT_TRUE(bytes_of(*mapped) == bytes);
}

TEST_F(FileTest, that_shrank_after_it_was_mapped_is_refused) {
  const std::string file = make("a", std::string(100'000, 'x'));
  const Result<MappedFile> mapped = MappedFile::open(file);
  ASSERT_TRUE(mapped);
  make("a", "short");
  const Result<void> resident = mapped->make_resident();
  ASSERT_FALSE(resident);
  EXPECT_EQ(resident.error().refusal, Refusal::FileRead);
}

TEST_F(FileTest, that_is_empty_gives_no_bytes) {
  const std::string file = make("empty", "");
  EXPECT_EQ(*read_file(file, 0), "");
  EXPECT_TRUE(MappedFile::open(file)->bytes().empty());
}

TEST_F(FileTest, that_is_not_there_is_refused_by_name) {
  const Result<std::string> read = read_file(path("none"), 10);
  ASSERT_FALSE(read);
  EXPECT_EQ(read.error().refusal, Refusal::FileMissing);
  EXPECT_NE(read.error().detail.find(path("none")), std::string::npos);
  EXPECT_EQ(MappedFile::open(path("none")).error().refusal, Refusal::FileMissing);
  EXPECT_FALSE(file_exists(path("none")));
}

TEST_F(FileTest, that_is_too_large_is_refused_with_both_numbers) {
  const Result<std::string> read = read_file(make("a", "12345"), 4);
  ASSERT_FALSE(read);
  EXPECT_EQ(read.error().refusal, Refusal::FileRead);
  EXPECT_NE(read.error().detail.find("5 bytes, at most 4"), std::string::npos)
      << read.error().detail;
}

TEST_F(FileTest, folders_and_pipes_are_refused_without_waiting) {
  ASSERT_EQ(mkfifo(path("pipe").c_str(), 0600), 0);
  for (const std::string& no_file : {folder_, path("pipe")}) {
    EXPECT_EQ(read_file(no_file, 10).error().refusal, Refusal::FileRead);
    EXPECT_EQ(MappedFile::open(no_file).error().refusal, Refusal::FileRead);
    EXPECT_FALSE(file_exists(no_file));
  }
}

TEST_F(FileTest, a_zero_byte_in_a_path_does_not_cut_it) {
  const std::string file = make("a", "x") + std::string("\0b", 2);
  EXPECT_EQ(read_file(file, 10).error().refusal, Refusal::FileMissing);
  EXPECT_FALSE(file_exists(file));
}

TEST_F(FileTest, exists_as_a_regular_file_only) {
  EXPECT_TRUE(file_exists(make("a", "")));
}

TEST(File, memory_without_a_file_is_resident_as_it_is) {
  const MappedFile memory = MappedFile::anonymous(10);
  memory.anonymous_bytes()[9] = std::byte{7};
  EXPECT_TRUE(memory.make_resident());
  EXPECT_EQ(memory.bytes()[9], std::byte{7});
}

}  // namespace
}  // namespace roost
