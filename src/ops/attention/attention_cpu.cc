// attention on the CPU: rows are cut into blocks, and blocks shared out among the threads; where
// there are few blocks, their splits are.
#include <algorithm>

#include "base/check.h"
#include "ops/attention/attention.h"
#include "ops/attention/attention_block_cpu.h"

namespace roost {
namespace {

constexpr int64_t kSplitsMax = 64;  // of a row (keys_per_split, kTokensMax)
// Sums that wait for their merge: enough for all splits of one block, or four at 16 queries.
constexpr int64_t kWaitingMax = kSplitsMax;
// Spans of so few rows and so many splits have their splits shared out too: a long sequence among
// others must not hold one thread alone.
constexpr int64_t kLoneRows = 16, kLoneSplits = 8;

// The rows of a span from `first` on that make a block: few enough to fit, one size of split.
int32_t block_rows(const Attention& op, const RowSpan& span, int32_t first) {
  const int64_t heads = op.q.dim(1) / op.k_pages.dim(1);
  const int32_t most = static_cast<int32_t>(kBlockQueries / heads);
  const int32_t position = span.first_index + first;
  int32_t n = std::min(most, span.n_rows - first);
  while (keys_per_split(position + n - 1) != keys_per_split(position)) --n;
  return n;
}

// Sums of the splits of several blocks, one by one.
struct Wave {
  std::span<AttentionBlock> blocks;
  int64_t n_splits = 0;

  // The block that split `i` of the wave belongs to; i becomes its split.
  const AttentionBlock& find(int64_t& i) const {
    size_t b = 0;
    for (; i >= blocks[b].n_splits(); ++b) i -= blocks[b].n_splits();
    return blocks[b];
  }
};

class AttentionRun {
 public:
  AttentionRun(const Attention& op, CpuContext& context)
      : pool_(context.pool), dim_(op.q.dim(2)), n_floats_(AttentionSums::n_floats(dim_)) {
    const auto n_threads = static_cast<size_t>(pool_.n_threads());
    n_scratch_floats_ = AttentionScratch::n_floats(dim_);
    scratch_ = context.workspace.span<float>(n_threads * n_scratch_floats_).data();
    waiting_ = context.workspace.span<float>(static_cast<size_t>(kWaitingMax) * n_floats_).data();
    const int64_t n_blocks_max = op.q.dim(0) * op.k_pages.dim(1);
    blocks_ = context.workspace.span<AttentionBlock>(static_cast<size_t>(n_blocks_max));
    cut(op);
  }

  void run() {
    // Blocks whose splits are shared out come first.
    const auto is_split = [&](const AttentionBlock& b) { return is_split_up(b); };
    AttentionBlock* end = blocks_.data() + n_blocks_;
    AttentionBlock* whole = std::partition(blocks_.data(), end, is_split);
    for (AttentionBlock* block = blocks_.data(); block != whole;) {
      Wave wave;
      AttentionBlock* const first = block;
      while (block != whole && wave.n_splits + block->n_splits() <= kWaitingMax)
        wave.n_splits += block++->n_splits();
      wave.blocks = {first, block};
      run_wave(wave);
    }
    // The last rows of a prompt see the most keys: longest first.
    pool_.parallel_for_with_thread(
        end - whole, [&](int64_t i, int thread) { run_whole(end[-1 - i], scratch(thread)); });
  }

 private:
  void cut(const Attention& op) {
    for (const RowSpan& span : op.spans) {
      for (int32_t first = 0, n = 0; first < span.n_rows; first += n) {
        n = block_rows(op, span, first);
        for (int32_t g = 0; g < op.k_pages.dim(1); ++g)
          blocks_[n_blocks_++] = {
              .op = &op, .span = &span, .first = first, .n_rows = n, .kv_head = g};
      }
    }
  }

  bool is_split_up(const AttentionBlock& block) const {
    if (block.n_splits() < 2) return false;
    const bool is_lone = block.span->n_rows <= kLoneRows && block.n_splits() >= kLoneSplits;
    return is_lone || n_blocks_ < 4 * static_cast<size_t>(pool_.n_threads());
  }

  AttentionScratch scratch(int thread) const {
    return AttentionScratch::at(scratch_ + static_cast<size_t>(thread) * n_scratch_floats_, dim_);
  }

  AttentionSums waiting(int64_t i) const {
    return AttentionSums::at(waiting_ + static_cast<size_t>(i) * n_floats_);
  }

  void run_whole(const AttentionBlock& block, const AttentionScratch& mine) const {
    load_block(block, mine);
    for (int64_t split = 0; split < block.n_splits(); ++split) {
      sum_split(block, split, mine, mine.split);
      merge_split(block, split, mine.split, mine, mine.total);
    }
    store_block(block, mine, mine.total);
  }

  void run_wave(const Wave& wave) const {
    pool_.parallel_for_with_thread(wave.n_splits, [&](int64_t i, int thread) {
      int64_t split = i;
      const AttentionBlock& block = wave.find(split);
      load_block(block, scratch(thread));
      sum_split(block, split, scratch(thread), waiting(i));
    });
    pool_.parallel_for_with_thread(static_cast<int64_t>(wave.blocks.size()), [&](int64_t b,
                                                                                 int thread) {
      int64_t first = 0;
      for (int64_t i = 0; i < b; ++i) first += wave.blocks[static_cast<size_t>(i)].n_splits();
      const AttentionBlock& block = wave.blocks[static_cast<size_t>(b)];
      load_block(block, scratch(thread));
      for (int64_t split = 0; split < block.n_splits(); ++split)
        merge_split(block, split, waiting(first + split), scratch(thread), scratch(thread).total);
      store_block(block, scratch(thread), scratch(thread).total);
    });
  }

  ThreadPool& pool_;
  int64_t dim_;
  size_t n_floats_, n_scratch_floats_ = 0, n_blocks_ = 0;
  float* scratch_ = nullptr;
  float* waiting_ = nullptr;
  std::span<AttentionBlock> blocks_;
};

}  // namespace

size_t AttentionScratch::n_floats(int64_t head_dim) {
  const int64_t n =
      kBlockQueries * (head_dim + kPageTokens + 2) + kKeyStep * (kKeyStride + kPageTokens);
  return static_cast<size_t>(n) + 2 * AttentionSums::n_floats(head_dim);
}

AttentionScratch AttentionScratch::at(float* memory, int64_t head_dim) {
  const auto take = [&](int64_t n) {
    float* const taken = memory;
    memory += n;
    return taken;
  };
  AttentionScratch scratch;
  scratch.queries = take(kBlockQueries * head_dim);
  scratch.scores = take(kBlockQueries * kPageTokens);
  scratch.positions = take(kBlockQueries);
  scratch.factors = take(kBlockQueries);
  scratch.keys = take(kKeyStep * kKeyStride);
  scratch.values = take(kKeyStep * kPageTokens);
  scratch.split = AttentionSums::at(take(static_cast<int64_t>(AttentionSums::n_floats(head_dim))));
  scratch.total = AttentionSums::at(take(static_cast<int64_t>(AttentionSums::n_floats(head_dim))));
  return scratch;
}

void attention_cpu(const Attention& op, CpuContext& context) {
  check(op);
  ROOST_CHECK(op.q.dtype == DType::kBF16 && op.q_gate.dtype == DType::kBF16);
  ROOST_CHECK(op.has_codes() || op.k_pages.dtype == DType::kBF16);
  ROOST_CHECK(op.out.dtype == DType::kBF16);
  const Arena::Scope scope(context.workspace);
  AttentionRun(op, context).run();
}

size_t attention_workspace_bytes(int64_t head_dim, int64_t kv_heads, int64_t rows_max,
                                 int n_threads) {
  const size_t n_floats = static_cast<size_t>(n_threads) * AttentionScratch::n_floats(head_dim) +
                          static_cast<size_t>(kWaitingMax) * AttentionSums::n_floats(head_dim);
  return n_floats * sizeof(float) +
         static_cast<size_t>(rows_max * kv_heads) * sizeof(AttentionBlock) + 4 * Arena::kAlign;
}

}  // namespace roost
