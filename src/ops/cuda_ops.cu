// The CUDA backend: every op goes to its kernel's launch function.
#include "ops/cuda_ops.h"

#include <algorithm>
#include <string>

#include "ops/cuda_backend.h"
#include "ops/launch.cuh"

namespace roost {
namespace {

// With more, attention and sample only have more rows in flight.
constexpr size_t kAttentionBytesMax = size_t{256} << 20;
constexpr int64_t kSampleRows = 16;
// Longer steps take so long that the time between launches does not show.
constexpr int64_t kRepeatedRowsMax = 64;

class CudaDraftOps final : public DraftOps {
 public:
  explicit CudaDraftOps(CudaContext& context) : context_(context) {}

  void run(const DraftConv& op) override { draft_conv_cuda(op, context_); }
  void run(const DraftAttention& op) override { draft_attention_cuda(op, context_); }
  void run(const DraftSelect& op) override { draft_select_cuda(op, context_); }

 private:
  CudaContext& context_;
};

class CudaOps final : public Ops {
 public:
  CudaOps(cuda::Card& card, const OpsLimits& limits)
      : card_(card),
        scratch_(cuda_workspace_bytes(limits)),
        context_{card.stream(), scratch_, card.staging()},
        draft_ops_(context_) {
    context_.graphs = &card.graphs();
  }

  void run(const Embed& op) override { embed_cuda(op, context_); }
  void run(const AddRmsNorm& op) override { add_rms_norm_cuda(op, context_); }
  void run(const QuantLinear& op) override { quant_linear_cuda(op, context_); }
  void run(const ConvGates& op) override { conv_gates_cuda(op, context_); }
  void run(const GatedDelta& op) override { gated_delta_cuda(op, context_); }
  void run(const QkNormRopeAppend& op) override { qk_norm_rope_append_cuda(op, context_); }
  void run(const Attention& op) override { attention_cuda(op, context_); }
  void run(const Route& op) override { route_cuda(op, context_); }
  void run(const MoeExperts& op) override { moe_experts_cuda(op, context_); }
  void run(const Sample& op) override { sample_cuda(op, context_); }
  void run(const CopyPages& op) override { copy_pages_cuda(op, context_); }

  Device& device() override { return card_; }
  DraftOps* draft_ops() override { return &draft_ops_; }
  void run_step(int64_t n_rows, const std::function<void()>& body) override {
    if (n_rows > kRepeatedRowsMax) return body();
    card_.graphs().run(body);
  }
  DType activation() const override { return DType::kBF16; }
  std::string name() const override { return "cuda " + cuda::card_name(); }
  std::string kernel_for(const QuantMatrix& w) const override {
    const bool has_tiles =
        w.format == QuantMatrix::Format::kBricks && cuda::has_warpgroup_products();
    return has_tiles ? "sm90_bricks_linear" : "sm80_qx_bf16_linear";
  }

 private:
  cuda::Card& card_;
  cuda::DeviceArena scratch_;
  CudaContext context_;
  CudaDraftOps draft_ops_;
};

class CudaHardware final : public Hardware {
 public:
  Device& device() override { return card_; }
  ThreadPool& pool() override { return pool_; }
  std::unique_ptr<Ops> make_ops(const OpsLimits& limits) override {
    return make_cuda_ops(card_, limits);
  }
  size_t workspace_bytes(const OpsLimits& limits) const override {
    return cuda_workspace_bytes(limits);
  }

 private:
  cuda::Card card_;
  ThreadPool pool_{1};
};

}  // namespace

// Ops run one at a time, so the workspace is as large as the hungriest of them.
size_t cuda_workspace_bytes(const OpsLimits& limits) {
  const size_t of_row =
      attention_cuda_scratch_bytes(limits.attention_heads, limits.head_dim, limits.context_max);
  const size_t of_rows = of_row * static_cast<size_t>(std::max<int64_t>(limits.rows_max, 1));
  size_t n_bytes = std::max(of_row, std::min(of_rows, kAttentionBytesMax));
  n_bytes = std::max(n_bytes, sample_cuda_scratch_bytes(limits.vocabulary) * kSampleRows);
  if (limits.draft_rows_max > 0)
    n_bytes = std::max(n_bytes,
                       draft_select_cuda_scratch_bytes(limits.draft_rows_max, limits.vocabulary));
  if (limits.experts > 0) {
    const MoeSizes sizes{.rows = limits.rows_max,
                         .hidden = limits.hidden,
                         .width = limits.expert_width,
                         .experts = limits.experts,
                         .experts_per_row = limits.experts_per_row};
    n_bytes = std::max(n_bytes, moe_experts_cuda_scratch_bytes(sizes));
  }
  return n_bytes;
}

std::unique_ptr<Ops> make_cuda_ops(cuda::Card& card, const OpsLimits& limits) {
  return std::make_unique<CudaOps>(card, limits);
}

std::unique_ptr<Hardware> make_cuda_hardware() {
  if (!cuda::has_card()) return nullptr;
  return std::make_unique<CudaHardware>();
}

}  // namespace roost
