// The machines that a contract test runs its op's kernels on: two of one backend, which must agree
// to the bit. ROOST_CONTRACT_CUDA says that the backend is CUDA; else it is the CPU.
#pragma once

#include "ops/ops.h"
#include "tests/contract/contract.h"

#ifdef ROOST_CONTRACT_CUDA
#include "tests/contract/cuda_machine.h"
#endif

namespace roost::contract {

#ifdef ROOST_CONTRACT_CUDA

using Machine = CudaMachine;

#else

inline void run_cpu(const Embed& op, CpuContext& context) {
  embed_cpu(op, context);
}
inline void run_cpu(const AddRmsNorm& op, CpuContext& context) {
  add_rms_norm_cpu(op, context);
}
inline void run_cpu(const QuantLinear& op, CpuContext& context) {
  quant_linear_cpu(op, context);
}
inline void run_cpu(const ConvGates& op, CpuContext& context) {
  conv_gates_cpu(op, context);
}
inline void run_cpu(const GatedDelta& op, CpuContext& context) {
  gated_delta_cpu(op, context);
}
inline void run_cpu(const QkNormRopeAppend& op, CpuContext& context) {
  qk_norm_rope_append_cpu(op, context);
}
inline void run_cpu(const Attention& op, CpuContext& context) {
  attention_cpu(op, context);
}
inline void run_cpu(const Route& op, CpuContext& context) {
  route_cpu(op, context);
}
inline void run_cpu(const MoeExperts& op, CpuContext& context) {
  moe_experts_cpu(op, context);
}
inline void run_cpu(const Sample& op, CpuContext& context) {
  sample_cpu(op, context);
}
inline void run_cpu(const CopyPages& op, CpuContext& context) {
  copy_pages_cpu(op, context);
}
inline void run_cpu(const DraftConv& op, CpuContext& context) {
  draft_conv_cpu(op, context);
}
inline void run_cpu(const DraftAttention& op, CpuContext& context) {
  draft_attention_cpu(op, context);
}
inline void run_cpu(const DraftSelect& op, CpuContext& context) {
  draft_select_cpu(op, context);
}

// n threads; on CUDA 1 is a whole card and 2 one that runs few blocks at a time.
class Machine : public CpuMachine {
 public:
  using CpuMachine::CpuMachine;
  template <class Op>
  Backend<Op> backend() {
    return CpuMachine::backend(static_cast<void (*)(const Op&, CpuContext&)>(run_cpu));
  }
};

#endif

}  // namespace roost::contract
