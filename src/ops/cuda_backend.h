// The CUDA kernels of the ops: their launch functions, and what they are handed besides an op's
// arguments. Tensors and weights of an op lie in memory of the card; the op itself, its spans, page
// tables and lists lie in host memory and may change when the call returns.
#pragma once

#include <cstddef>
#include <span>

#include "device/cuda/device_memory.h"
#include "device/cuda/step_graphs.h"
#include "device/cuda/stream.h"
#include "ops/ops.h"

namespace roost {

// A launch function queues work on the stream; it allocates nothing and does not wait for the card.
struct CudaContext {
  const cuda::Stream& stream;
  cuda::DeviceArena& scratch;
  cuda::Staging& staging;
  // The largest grid of a launch: what it does not reach in one go, it does in several. No bit
  // shows.
  int blocks_max = 1 << 20;
  cuda::StepGraphs* graphs = nullptr;  // null: no step is repeated

  // A list of the host's, where it lies for the work that follows.
  template <class T>
  const T* push(std::span<const T> items) {
    if (graphs == nullptr || !graphs->is_active()) return staging.push(items);
    return reinterpret_cast<const T*>(graphs->push(items.data(), items.size_bytes()));
  }
};

void embed_cuda(const Embed& op, CudaContext& context);
void add_rms_norm_cuda(const AddRmsNorm& op, CudaContext& context);
void quant_linear_cuda(const QuantLinear& op, CudaContext& context);
void conv_gates_cuda(const ConvGates& op, CudaContext& context);
void gated_delta_cuda(const GatedDelta& op, CudaContext& context);
void qk_norm_rope_append_cuda(const QkNormRopeAppend& op, CudaContext& context);
void attention_cuda(const Attention& op, CudaContext& context);
void route_cuda(const Route& op, CudaContext& context);
void moe_experts_cuda(const MoeExperts& op, CudaContext& context);
void sample_cuda(const Sample& op, CudaContext& context);
void copy_pages_cuda(const CopyPages& op, CudaContext& context);
void draft_conv_cuda(const DraftConv& op, CudaContext& context);
void draft_attention_cuda(const DraftAttention& op, CudaContext& context);
void draft_select_cuda(const DraftSelect& op, CudaContext& context);

// Scratch of the largest call, by op. What attention and sample get beyond their least they use to
// have more rows in flight.
size_t attention_cuda_scratch_bytes(int64_t n_heads, int64_t head_dim, int64_t context_max);
size_t moe_experts_cuda_scratch_bytes(const MoeSizes& sizes);
size_t sample_cuda_scratch_bytes(int64_t vocabulary);
size_t draft_select_cuda_scratch_bytes(int64_t rows, int64_t vocabulary);

}  // namespace roost
