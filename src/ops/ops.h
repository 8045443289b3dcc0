// The interface of a backend's arithmetic: one run() per op. The model is written once, over Ops.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "device/arena.h"
#include "device/cpu/thread_pool.h"
#include "device/device.h"
#include "ops/add_rms_norm/add_rms_norm.h"
#include "ops/attention/attention.h"
#include "ops/backend.h"
#include "ops/conv_gates/conv_gates.h"
#include "ops/copy_pages/copy_pages.h"
#include "ops/draft_attention/draft_attention.h"
#include "ops/draft_conv/draft_conv.h"
#include "ops/draft_select/draft_select.h"
#include "ops/embed/embed.h"
#include "ops/gated_delta/gated_delta.h"
#include "ops/moe_experts/moe_experts.h"
#include "ops/qk_norm_rope_append/qk_norm_rope_append.h"
#include "ops/quant_linear/quant_linear.h"
#include "ops/route/route.h"
#include "ops/sample/sample.h"

namespace roost {

// The ops that only a drafter needs, under the rules of Ops.
class DraftOps {
 public:
  virtual ~DraftOps() = default;

  virtual void run(const DraftConv& op) = 0;
  virtual void run(const DraftAttention& op) = 0;
  virtual void run(const DraftSelect& op) = 0;
};

// An op's outputs and new state are a function of its arguments alone, the same bits for a row
// whatever else is in the call (law 1). One thread calls at a time; a call allocates nothing.
class Ops {
 public:
  virtual ~Ops() = default;

  virtual void run(const Embed& op) = 0;
  virtual void run(const AddRmsNorm& op) = 0;
  virtual void run(const QuantLinear& op) = 0;
  virtual void run(const ConvGates& op) = 0;
  virtual void run(const GatedDelta& op) = 0;
  virtual void run(const QkNormRopeAppend& op) = 0;
  virtual void run(const Attention& op) = 0;
  virtual void run(const Route& op) = 0;
  virtual void run(const MoeExperts& op) = 0;
  virtual void run(const Sample& op) = 0;
  virtual void run(const CopyPages& op) = 0;

  // Runs a step: the calls that `body` makes, and what it writes to the device, for n_rows rows. A
  // backend that repeats equal steps may call body twice; it makes the same calls each time.
  virtual void run_step([[maybe_unused]] int64_t n_rows, const std::function<void()>& body) {
    body();
  }
  // Where tensors and weights of the ops lie.
  virtual Device& device() { return host_device(); }
  // Null: a backend without drafts.
  virtual DraftOps* draft_ops() { return nullptr; }

  // The type of activations, K/V pages and conv tails: bf16 but for the exact reference (f64).
  virtual DType activation() const = 0;
  // "cpu avx3, 2 threads": enters the identity of stored state.
  virtual std::string name() const = 0;
  // Which kernel multiplies with such a matrix, for `roost inspect`.
  virtual std::string kernel_for(const QuantMatrix& w) const = 0;
};

// The largest calls a backend must be ready for; it takes its workspace from these at start.
struct OpsLimits {
  int64_t rows_max = 0;                    // rows of a step
  int64_t hidden = 0;                      // h
  int64_t n_in_max = 0;                    // inputs of any product
  int64_t experts = 0;                     // E, 0 for dense models
  int64_t experts_per_row = 0;             // K
  int64_t expert_width = 0;                // the larger of mi and si
  int64_t attention_heads = 0;             // nh
  int64_t kv_heads = 0;                    // nkv
  int64_t head_dim = 0;                    // D
  int64_t key_heads = 0, value_heads = 0;  // Hk, Hv
  int64_t key_dim = 0, value_dim = 0;      // Dk, Dv
  int64_t context_max = 0;                 // tokens of a sequence
  int64_t vocabulary = 0;                  // V
  int64_t draft_heads_per_kv = 0;          // of the drafter; 0: none
  int64_t draft_head_dim = 0;
  int64_t draft_rows_max = 0;  // of all blocks of a call
};

// What the ops run on, chosen at start. It must outlive its Ops.
class Hardware {
 public:
  virtual ~Hardware() = default;
  virtual Device& device() = 0;
  virtual ThreadPool& pool() = 0;  // for work on the host
  virtual std::unique_ptr<Ops> make_ops(const OpsLimits& limits) = 0;
  virtual size_t workspace_bytes(const OpsLimits& limits) const = 0;  // of the device
};

std::unique_ptr<Hardware> make_cpu_hardware(int n_threads);

// The CPU backend (Highway kernels). The pool must outlive it.
std::unique_ptr<Ops> make_cpu_ops(ThreadPool& pool, const OpsLimits& limits);
size_t cpu_workspace_bytes(const OpsLimits& limits, int n_threads);

// The float64 references as a backend.
std::unique_ptr<Ops> make_reference_ops(const ReferenceRules& rules);

}  // namespace roost
