// The DFlash drafter: guesses a block of tokens in one pass from what the target's layers left
// behind (docs/DRAFTER.md).
#pragma once

#include <functional>
#include <span>
#include <string_view>
#include <vector>

#include "device/arena.h"
#include "device/device.h"
#include "ops/ops.h"
#include "weights/drafter.h"
#include "weights/weights.h"

namespace roost {

// The drafter's only memory of a text: one key and one value row a layer for each token, in pages
// that have the numbers of the target's K/V pages. Whoever holds a page of the target's holds these
// rows with it.
struct DrafterState {
  struct Pages {
    Tensor k, v;  // [pages, nkv, 64, d]
  };
  std::vector<Pages> pages;  // one per draft layer
  std::vector<Buffer> memory;

  static size_t bytes_per_page(const DrafterConfig& config, DType dtype);
  static DrafterState create(const DrafterConfig& config, DType dtype, int32_t n_pages,
                             Device& device = host_device());
};

// One block to draft, of one sequence.
struct DraftBlock {
  int32_t anchor = 0;    // the token at `position`, whose rows the target has not run yet
  int32_t n_rows = 0;    // 2 to DrafterConfig::block_rows_max: the anchor and n_rows - 1 drafts
  int32_t position = 0;  // tokens [0, position) are committed
  int32_t context_begin = 0;  // those from here on are absorbed
  const int32_t* page_table = nullptr;
  SampleParams params;  // of the sequence's draws; position is set by the drafter
};

class Drafter {
 public:
  // weights, target and ops must outlive the drafter; ops must have draft_ops(). rows_max: rows of
  // one absorb(); block_rows_max: rows of all blocks of one draft(). n_tokens: ids from there on
  // are not drafted.
  Drafter(const DrafterWeights& weights, const ModelWeights& target, Ops& ops, int64_t rows_max,
          int64_t block_rows_max, int64_t n_tokens);

  // Takes rows into the state. taps [T, taps·h] activation: for each row the residual stream behind
  // each tapped layer, side by side in the order of the taps; spans: whose tokens they are.
  void absorb(const Tensor& taps, std::span<const RowSpan> spans, const DrafterState& state);

  // Writes the drafts of block 0, then those of block 1, …: n_rows - 1 tokens each; -1 from where
  // there is none. Reads the state only: the same call twice drafts the same.
  void draft(std::span<const DraftBlock> blocks, const DrafterState& state,
             std::span<int32_t> tokens);

  const DrafterConfig& config() const { return config_; }

  // Called with a place and the tensor there, for tests: "context" [T, h], "hidden" [N, h],
  // "logits" [N, V], "ids" and "scores" [N, k], N rows without the anchors'.
  using Tap = std::function<void(std::string_view place, const Tensor& tensor)>;
  void set_tap(Tap tap) { tap_ = std::move(tap); }

  // Makes the target's limits large enough for the drafter's calls.
  static void widen(const DrafterConfig& config, int64_t rows_max, int64_t block_rows_max,
                    OpsLimits& limits);
  static size_t scratch_bytes(const DrafterConfig& config, DType activation, int64_t rows_max,
                              int64_t block_rows_max);

 private:
  // The rows of the blocks of one call.
  struct Rows {
    std::vector<DraftSpan> spans;
    Tensor ids;     // [T] i32
    Tensor rope;    // [T, d/2, 2] f32
    Tensor drafts;  // [N] i32: the rows that are not an anchor's
  };
  // A sublayer's input and output, [T, h] each.
  struct Buffers {
    Tensor normed, mixed, out, convolved, dynamic;
  };
  void arrange(std::span<const DraftBlock> blocks);
  Tensor rope_table(std::span<const int32_t> positions);
  Tensor list_of(std::span<const int32_t> values);  // [n] i32, where the ops read it
  void absorb_rows(const Tensor& taps, std::span<const RowSpan> spans, const DrafterState& state);
  void run_layers(std::span<const DraftBlock> blocks, const DrafterState& state,
                  const Tensor& tokens);
  Tensor convolved(const DraftConvWeights& w, const Tensor& x, const Tensor& out, int side,
                   const Buffers& b);
  Tensor attention(const DrafterLayerWeights& w, const DrafterConfig::Layer& layer,
                   const DrafterState::Pages& pages, const Buffers& b);
  Tensor mlp(const DrafterLayerWeights& w, const Buffers& b);
  void select(const Tensor& x, const Tensor& add, const Tensor& tokens);
  void tap(std::string_view place, const Tensor& tensor) const {
    if (tap_) tap_(place, tensor);
  }

  const DrafterWeights& weights_;
  const DrafterConfig& config_;
  const ModelWeights& target_;
  Ops& ops_;
  DraftOps& draft_ops_;
  const int64_t n_tokens_;
  Device& device_;  // of the scratch and the state
  Arena scratch_;
  std::vector<double> frequencies_;  // [d/2]
  std::vector<float> rope_;          // [rows_max, d/2, 2] a call's rotations, on the host
  std::vector<int32_t> positions_, ids_, draft_rows_;  // of the rows of the call, on the host
  std::vector<DraftWalk> walks_;
  Rows rows_;
  Tap tap_;
};

}  // namespace roost
