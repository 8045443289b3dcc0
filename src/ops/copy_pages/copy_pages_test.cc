#include "ops/copy_pages/copy_pages.h"

#include <gtest/gtest.h>

#include "tests/contract/contract.h"
#include "tests/contract/machine.h"

namespace roost {
namespace {

using namespace contract;

struct Case {
  std::string name;
  DType dtype;
  Shape pool;
  std::vector<double> values;
  std::vector<PageCopy> copies;
};

CopyPages arrange(const Case& c, Memory& memory) {
  return {.pool = memory.in_out(c.dtype, c.pool, c.values), .copies = memory.list(c.copies)};
}

void judge(const Case& c, const CopyPages& got, const ReferenceRules& rules, Judge& judge) {
  Memory memory;
  const CopyPages exact = arrange(c, memory);
  copy_pages_reference(exact, rules);
  judge.equal("pool", got.pool, exact.pool);
}

const Suite<CopyPages, Case> kSuite{.name = [](const Case& c) { return c.name; },
                                    .arrange = arrange,
                                    .judge = judge,
                                    .n_rows = nullptr,
                                    .select = nullptr,
                                    .row_outputs = nullptr};

std::vector<Case> cases() {
  std::vector<Case> all;
  for (const DType dtype : {DType::kBF16, DType::kF32, DType::kF64}) {
    for (const Shape& pool : {Shape{7, 1}, Shape{9, 3, 5}, Shape{8, 2, 64, 4}}) {
      Case c{"pool of " + std::string(name_of(dtype)) + " " + to_string(pool),
             dtype,
             pool,
             values(Fill::kCoordinates, pool.n_elements(), 1),
             {{2, 6}, {0, 1}, {2, 4}}};
      all.push_back(c);
      c.copies.clear();
      c.name += ", no copies";
      all.push_back(c);
    }
  }
  return all;
}

std::vector<Fault<CopyPages, Case>> faults() {
  const auto each_copy = [](auto change) {
    return [change](Case& c) {
      for (PageCopy& copy : c.copies) change(copy);
    };
  };
  return {
      {"from and to swapped",
       [](Case& c) {
         if (!c.copies.empty()) std::swap(c.copies[1].from, c.copies[1].to);
       }},
      {"the last copy left out",
       [](Case& c) {
         if (!c.copies.empty()) c.copies.pop_back();
       }},
      {"the page in front of the wanted one",
       each_copy([](PageCopy& copy) { copy.to -= copy.to == 6; })},
      {"from the page behind", each_copy([](PageCopy& copy) { copy.from += copy.from == 2; })},
      {"first byte of a page not copied", nullptr,
       [](const CopyPages& op) {
         const size_t page = op.pool.n_bytes() / static_cast<size_t>(op.pool.dim(0));
         op.pool.data[6 * page] ^= std::byte{0x40};
       }},
      {"one page too many", nullptr,
       [](const CopyPages& op) { op.pool.data[op.pool.n_bytes()] = std::byte{0}; }},
      {"another page touched", nullptr, [](const CopyPages& op) { op.pool.set(3, 0.75); }},
  };
}

class CopyPagesTest : public testing::Test {
 protected:
  Machine one_{1}, two_{2};
  std::vector<Backend<CopyPages>> backends_{one_.backend<CopyPages>(), two_.backend<CopyPages>()};
};

TEST_F(CopyPagesTest, keeps_the_contract) {
  EXPECT_EQ(kernel_keeps_contract(kSuite, cases(), backends_), "");
  EXPECT_EQ(bits_are_the_rows_own(kSuite, cases(), backends_), "");
}

TEST_F(CopyPagesTest, sees_every_planted_fault) {
  EXPECT_EQ(faults_not_seen(kSuite, cases(), backends_[0], faults()), "");
}

TEST(CopyPagesCheck, a_page_that_is_both_read_and_written_is_a_bug) {
  Case c = cases()[0];
  c.copies = {{0, 1}, {1, 2}};
  Memory memory;
  EXPECT_DEATH(check(arrange(c, memory)), "copy.to != op.copies");
}

}  // namespace
}  // namespace roost
