// The CPU backend: every op goes to its Highway kernel.
#include <algorithm>

#include "ops/ops.h"
#include "ops/quant_linear/product_cpu.h"

namespace roost {
namespace {

class CpuDraftOps final : public DraftOps {
 public:
  explicit CpuDraftOps(CpuContext& context) : context_(context) {}

  void run(const DraftConv& op) override { draft_conv_cpu(op, context_); }
  void run(const DraftAttention& op) override { draft_attention_cpu(op, context_); }
  void run(const DraftSelect& op) override { draft_select_cpu(op, context_); }

 private:
  CpuContext& context_;
};

class CpuOps final : public Ops {
 public:
  CpuOps(ThreadPool& pool, const OpsLimits& limits)
      : workspace_(cpu_workspace_bytes(limits, pool.n_threads())),
        context_{pool, workspace_},
        draft_ops_(context_) {}

  void run(const Embed& op) override { embed_cpu(op, context_); }
  void run(const AddRmsNorm& op) override { add_rms_norm_cpu(op, context_); }
  void run(const QuantLinear& op) override { quant_linear_cpu(op, context_); }
  void run(const ConvGates& op) override { conv_gates_cpu(op, context_); }
  void run(const GatedDelta& op) override { gated_delta_cpu(op, context_); }
  void run(const QkNormRopeAppend& op) override { qk_norm_rope_append_cpu(op, context_); }
  void run(const Attention& op) override { attention_cpu(op, context_); }
  void run(const Route& op) override { route_cpu(op, context_); }
  void run(const MoeExperts& op) override { moe_experts_cpu(op, context_); }
  void run(const Sample& op) override { sample_cpu(op, context_); }
  void run(const CopyPages& op) override { copy_pages_cpu(op, context_); }

  DraftOps* draft_ops() override { return &draft_ops_; }
  DType activation() const override { return DType::kBF16; }
  std::string name() const override {
    return std::string("cpu ") + product_target_name() + ", " +
           std::to_string(context_.pool.n_threads()) + " threads";
  }
  std::string kernel_for(const QuantMatrix& w) const override {
    return std::string(product_target_name()) + "_" + product_kernel_name(w);
  }

 private:
  Arena workspace_;
  CpuContext context_;
  CpuDraftOps draft_ops_;
};

class CpuHardware final : public Hardware {
 public:
  explicit CpuHardware(int n_threads) : pool_(n_threads) {}
  Device& device() override { return host_device(); }
  ThreadPool& pool() override { return pool_; }
  std::unique_ptr<Ops> make_ops(const OpsLimits& limits) override {
    return make_cpu_ops(pool_, limits);
  }
  size_t workspace_bytes(const OpsLimits& limits) const override {
    return cpu_workspace_bytes(limits, pool_.n_threads());
  }

 private:
  ThreadPool pool_;
};

}  // namespace

std::unique_ptr<Hardware> make_cpu_hardware(int n_threads) {
  return std::make_unique<CpuHardware>(n_threads);
}

// Ops run one at a time, so the workspace is as large as the hungriest of them.
size_t cpu_workspace_bytes(const OpsLimits& limits, int n_threads) {
  size_t n_bytes = quant_linear_workspace_bytes(limits.n_in_max, limits.rows_max, n_threads);
  n_bytes = std::max(n_bytes, gated_delta_workspace_bytes(n_threads));
  n_bytes = std::max(n_bytes, attention_workspace_bytes(limits.head_dim, limits.kv_heads,
                                                        limits.rows_max, n_threads));
  n_bytes = std::max(n_bytes, sample_workspace_bytes(limits.vocabulary, n_threads));
  if (limits.experts > 0) {
    const MoeSizes sizes{.rows = limits.rows_max,
                         .hidden = limits.hidden,
                         .width = limits.expert_width,
                         .experts = limits.experts,
                         .experts_per_row = limits.experts_per_row};
    n_bytes = std::max(n_bytes, moe_experts_workspace_bytes(sizes, n_threads));
  }
  if (limits.draft_heads_per_kv > 0)
    n_bytes = std::max(n_bytes, draft_attention_workspace_bytes(limits.draft_heads_per_kv,
                                                                limits.draft_head_dim, n_threads));
  return n_bytes;
}

std::unique_ptr<Ops> make_cpu_ops(ThreadPool& pool, const OpsLimits& limits) {
  return std::make_unique<CpuOps>(pool, limits);
}

}  // namespace roost
