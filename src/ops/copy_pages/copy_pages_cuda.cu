// The CUDA kernel of copy_pages: one block a copy.
#include "ops/launch.cuh"

namespace roost {
namespace {

using namespace cuda;

constexpr int kThreads = 256;

__global__ void sm80_copy_pages(uint8_t* pool, const PageCopy* copies, int64_t n_copies,
                                int64_t page_bytes) {
  wait_for_inputs();
  // Pages of whole 16-byte pieces move in such pieces; the pool itself is aligned then.
  const bool is_wide = page_bytes % 16 == 0 && reinterpret_cast<uintptr_t>(pool) % 16 == 0;
  for (int64_t c = blockIdx.x; c < n_copies; c += gridDim.x) {
    const uint8_t* from = pool + copies[c].from * page_bytes;
    uint8_t* to = pool + copies[c].to * page_bytes;
    if (is_wide) {
      for (int64_t i = threadIdx.x; i < page_bytes / 16; i += kThreads)
        reinterpret_cast<uint4*>(to)[i] = reinterpret_cast<const uint4*>(from)[i];
    } else {
      for (int64_t i = threadIdx.x; i < page_bytes; i += kThreads) to[i] = from[i];
    }
  }
}

}  // namespace

void copy_pages_cuda(const CopyPages& op, CudaContext& context) {
  if (op.copies.empty()) return;
  const auto n_copies = static_cast<int64_t>(op.copies.size());
  const int64_t page_bytes = static_cast<int64_t>(op.pool.n_bytes()) / op.pool.dim(0);
  const PageCopy* copies = context.push(op.copies);
  launch_kernel(context, sm80_copy_pages, grid_of(context, n_copies), kThreads, 0,
                reinterpret_cast<uint8_t*>(op.pool.data), copies, n_copies, page_bytes);
}

}  // namespace roost
