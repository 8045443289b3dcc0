// The float64 references as a backend: slow, plain, and the yardstick of all others.
#include "ops/ops.h"

namespace roost {
namespace {

class ReferenceDraftOps final : public DraftOps {
 public:
  explicit ReferenceDraftOps(const ReferenceRules& rules) : rules_(rules) {}

  void run(const DraftConv& op) override { draft_conv_reference(op, rules_); }
  void run(const DraftAttention& op) override { draft_attention_reference(op, rules_); }
  void run(const DraftSelect& op) override { draft_select_reference(op, rules_); }

 private:
  ReferenceRules rules_;
};

class ReferenceOps final : public Ops {
 public:
  explicit ReferenceOps(const ReferenceRules& rules) : rules_(rules), draft_ops_(rules) {}

  void run(const Embed& op) override { embed_reference(op, rules_); }
  void run(const AddRmsNorm& op) override { add_rms_norm_reference(op, rules_); }
  void run(const QuantLinear& op) override { quant_linear_reference(op, rules_); }
  void run(const ConvGates& op) override { conv_gates_reference(op, rules_); }
  void run(const GatedDelta& op) override { gated_delta_reference(op, rules_); }
  void run(const QkNormRopeAppend& op) override { qk_norm_rope_append_reference(op, rules_); }
  void run(const Attention& op) override { attention_reference(op, rules_); }
  void run(const Route& op) override { route_reference(op, rules_); }
  void run(const MoeExperts& op) override { moe_experts_reference(op, rules_); }
  void run(const Sample& op) override { sample_reference(op, rules_); }
  void run(const CopyPages& op) override { copy_pages_reference(op, rules_); }

  DraftOps* draft_ops() override { return &draft_ops_; }
  DType activation() const override { return rules_.activation(); }
  std::string name() const override { return rules_.rounding ? "reference" : "reference, exact"; }
  std::string kernel_for(const QuantMatrix&) const override { return "float64 reference"; }

 private:
  ReferenceRules rules_;
  ReferenceDraftOps draft_ops_;
};

}  // namespace

std::unique_ptr<Ops> make_reference_ops(const ReferenceRules& rules) {
  return std::make_unique<ReferenceOps>(rules);
}

}  // namespace roost
