// Measures what the device can do at most: copying, reading, and wgmma without any loads from
// global memory. All on random data: zeros draw less power and run faster.

#include "laws/cuda/rates.h"

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "device/cuda/check.cuh"
#include "device/cuda/wgmma.cuh"
#include "laws/cuda/device_array.cuh"

namespace roost::laws {
namespace {

int n_multiprocessors() {
  int n = 0;
  cuda::check(cudaDeviceGetAttribute(&n, cudaDevAttrMultiProcessorCount, 0));
  return n;
}

__device__ uint32_t scrambled(uint64_t i) {
  uint64_t x = (i + 1) * 0x9e3779b97f4a7c15ull;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
  return uint32_t(x >> 32);
}

// Random bf16 values of either sign with exponents -3 to 0.
__global__ void fill_kernel(uint16_t* out, size_t n) {
  const size_t step = size_t(gridDim.x) * blockDim.x;
  for (size_t i = size_t(blockIdx.x) * blockDim.x + threadIdx.x; i < n; i += step) {
    const uint32_t x = scrambled(i);
    out[i] = uint16_t((x & 0x8000) | (124 + (x >> 16) % 4) << 7 | (x & 0x7f));
  }
}

void fill(void* data, size_t n_bytes) {
  fill_kernel<<<n_multiprocessors() * 8, 512>>>(static_cast<uint16_t*>(data), n_bytes / 2);
  cuda::check_launch();
}

class Event {
 public:
  Event() { cuda::check(cudaEventCreate(&event_)); }
  ~Event() { cuda::check(cudaEventDestroy(event_)); }
  Event(const Event&) = delete;
  Event& operator=(const Event&) = delete;
  void record(cudaStream_t stream = nullptr) { cuda::check(cudaEventRecord(event_, stream)); }
  cudaEvent_t get() const { return event_; }

 private:
  cudaEvent_t event_;
};

// Median of n_runs after two runs that warm up.
template <typename Work>
double median_ms(int n_runs, const Work& work) {
  Event start, stop;
  std::vector<float> times(n_runs);
  for (int i = -2; i < n_runs; ++i) {
    start.record();
    work();
    stop.record();
    cuda::check(cudaEventSynchronize(stop.get()));
    if (i >= 0) cuda::check(cudaEventElapsedTime(&times[i], start.get(), stop.get()));
  }
  std::sort(times.begin(), times.end());
  return times[n_runs / 2];
}

// --- memory ---------------------------------------------------------------------------------

constexpr int kUnroll = 8;  // 16-byte loads in flight for each thread

// Each round moves all of the data; blocks change places between rounds, so that a second reading
// of the same bytes comes from L2 and not from the multiprocessor's own cache.
template <bool kIsCopy>
__global__ void __launch_bounds__(512)
    move_kernel(const uint4* in, uint4* out, size_t n, int n_rounds) {
  const size_t step = size_t(gridDim.x) * blockDim.x;
  uint32_t mixed = 0;
  for (int round = 0; round < n_rounds; ++round) {
    const size_t block = (blockIdx.x + round * 37) % gridDim.x;
    for (size_t i = block * blockDim.x + threadIdx.x; i < n; i += step * kUnroll) {
      uint4 part[kUnroll];
#pragma unroll
      for (int j = 0; j < kUnroll; ++j)
        part[j] = i + j * step < n ? __ldcs(in + i + j * step) : uint4{};
#pragma unroll
      for (int j = 0; j < kUnroll; ++j) {
        if (kIsCopy && i + j * step < n) __stcs(out + i + j * step, part[j]);
        mixed ^= part[j].x ^ part[j].y ^ part[j].z ^ part[j].w;
      }
    }
  }
  // Keeps the loads; one value in 2^32 writes a word that nobody reads.
  if (!kIsCopy && mixed == 0x5bd1e995) out[0].x = mixed;
}

// Best of several grids, in TB/s over the bytes read and written.
template <bool kIsCopy>
Figure best_move(const char* what, const uint4* in, uint4* out, size_t n_bytes, int n_rounds) {
  double best = 0;
  int best_blocks = 0;
  for (const int blocks : {1, 2, 4, 8, 16, 32}) {
    const double ms = median_ms(9, [&] {
      move_kernel<kIsCopy><<<n_multiprocessors() * blocks, 512>>>(in, out, n_bytes / 16, n_rounds);
      cuda::check_launch();
    });
    const double rate = (kIsCopy ? 2 : 1) * double(n_bytes) * n_rounds / ms / 1e9;
    if (rate > best) best = rate, best_blocks = blocks;
  }
  return {std::string(what) + ", " + std::to_string(best_blocks) + " blocks a multiprocessor", best,
          "TB/s"};
}

// --- products -------------------------------------------------------------------------------

struct Span {
  unsigned long long cycles, ns;
};

__device__ unsigned long long global_ns() {
  unsigned long long ns;
  asm volatile("mov.u64 %0, %globaltimer;" : "=l"(ns));
  return ns;
}

constexpr int kStages = 4;  // different tiles of 64 k in turn
constexpr int kStepsAStage = 4;
constexpr int kStagesAChain = 16;  // K = 1,024, then the accumulators start over

template <int N, bool kIsAInRegisters, int kGroups>
struct RateShape {
  static constexpr int kTileB = N * 128;  // bytes of 64 k
  static constexpr int kTileA = 64 * 128;
  static constexpr int kSharedBytes =
      kStages * kTileB + (kIsAInRegisters ? 0 : kGroups * kStages * kTileA);
  static constexpr int kThreads = kGroups * 128;
};

// Each warpgroup multiplies its own 64 rows by the B that all share, over and over. Operands stand
// in 128-byte-swizzled tiles; random data is random in any layout.
template <int N, bool kIsAInRegisters, int kGroups>
__global__ void __launch_bounds__(kGroups * 128, 1)
    rate_kernel(const uint4* noise, int n_chains, float* sink, Span* span) {
  using namespace roost::cuda;
  using Shape = RateShape<N, kIsAInRegisters, kGroups>;
  extern __shared__ __align__(1024) char shared[];
  for (int i = threadIdx.x; i < Shape::kSharedBytes / 16; i += Shape::kThreads)
    reinterpret_cast<uint4*>(shared)[i] = noise[blockIdx.x % 16 * 64 + i];
  fence_async_shared();
  __syncthreads();

  const uint32_t b_tiles = shared_address(shared);
  const uint32_t a_tiles =
      b_tiles + kStages * Shape::kTileB + threadIdx.x / 128 * kStages * Shape::kTileA;
  uint32_t a[kStepsAStage][4];
#pragma unroll
  for (int s = 0; s < kStepsAStage; ++s) {
    const uint4 part = noise[(blockIdx.x * kStepsAStage + s) * Shape::kThreads + threadIdx.x];
    a[s][0] = part.x, a[s][1] = part.y, a[s][2] = part.z, a[s][3] = part.w;
  }
  float acc[N / 2];
#pragma unroll
  for (int i = 0; i < N / 2; ++i) acc[i] = 0.0f;

  const unsigned long long cycle0 = clock64(), ns0 = global_ns();
  for (int chain = 0; chain < n_chains; ++chain) {
    for (int round = 0; round < kStagesAChain / kStages; ++round) {
#pragma unroll
      for (int stage = 0; stage < kStages; ++stage) {
        wgmma_fence();
#pragma unroll
        for (int s = 0; s < kStepsAStage; ++s) {
          const bool is_added = round > 0 || stage > 0 || s > 0;
          const uint64_t b = swizzled_descriptor(b_tiles + stage * Shape::kTileB + s * 32);
          if constexpr (kIsAInRegisters)
            wgmma(acc, a[s], b, is_added);
          else
            wgmma(acc, swizzled_descriptor(a_tiles + stage * Shape::kTileA + s * 32), b, is_added);
        }
        wgmma_commit();
        wgmma_wait<1>();
      }
    }
  }
  wgmma_wait<0>();
  wgmma_hold(acc);
  const unsigned long long cycle1 = clock64(), ns1 = global_ns();

  float sum = 0;
#pragma unroll
  for (int i = 0; i < N / 2; ++i) sum += acc[i];
  sink[blockIdx.x * Shape::kThreads + threadIdx.x] = sum;
  if (threadIdx.x == 0) span[blockIdx.x] = {cycle1 - cycle0, ns1 - ns0};
}

struct RateBuffers {
  DeviceArray<uint4> noise{size_t(8) << 20 >> 4};
  DeviceArray<float> sink{size_t(256) * 512};
  DeviceArray<Span> span{256};

  RateBuffers() { fill(noise.data(), noise.size() * sizeof(uint4)); }
};

template <int N, bool kIsAInRegisters, int kGroups>
void launch_rate(const RateBuffers& buffers, int n_blocks, int n_chains, cudaStream_t stream) {
  using Shape = RateShape<N, kIsAInRegisters, kGroups>;
  const auto kernel = rate_kernel<N, kIsAInRegisters, kGroups>;
  cuda::check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                   Shape::kSharedBytes));
  kernel<<<n_blocks, Shape::kThreads, Shape::kSharedBytes, stream>>>(
      buffers.noise.data(), n_chains, buffers.sink.data(), buffers.span.data());
  cuda::check_launch();
}

// TFLOP/s, the cycles that one k16 step of all groups takes, and the clock while it ran.
template <int N, bool kIsAInRegisters, int kGroups>
void add_rate(std::vector<Figure>& figures, const RateBuffers& buffers) {
  const int n_blocks = n_multiprocessors();
  constexpr int kStepsAChain = kStagesAChain * kStepsAStage;
  // About 5 ms at 16 cycles for each 32 columns of each group.
  const int n_chains = 9'000'000 / (kStepsAChain * kGroups * std::max(N, 32) / 2);
  const double ms = median_ms(
      7, [&] { launch_rate<N, kIsAInRegisters, kGroups>(buffers, n_blocks, n_chains, nullptr); });
  const Span span = buffers.span.read()[0];
  const double n_steps = double(n_chains) * kStepsAChain;
  const double flops = 2.0 * 64 * N * 16 * kGroups * n_steps * n_blocks;
  const std::string id = std::string(kIsAInRegisters ? "wgmma A registers" : "wgmma A shared") +
                         ", N " + std::to_string(N) + ", groups " + std::to_string(kGroups);
  figures.push_back({id, flops / ms / 1e9, "TFLOP/s"});
  figures.push_back({id + ", a k16 step of all groups", double(span.cycles) / n_steps, "cycles"});
  figures.push_back({id + ", clock", double(span.cycles) / double(span.ns) * 1e3, "MHz"});
}

// One second and a half without a pause: the clock the power limit leaves.
template <int N, bool kIsAInRegisters, int kGroups>
void add_sustained_rate(std::vector<Figure>& figures, const RateBuffers& buffers) {
  const int n_blocks = n_multiprocessors();
  constexpr int kLaunches = 300;
  constexpr int kStepsAChain = kStagesAChain * kStepsAStage;
  const int n_chains = 9'000'000 / (kStepsAChain * kGroups * N / 2);
  Event start, middle, stop;
  start.record();
  for (int i = 0; i < kLaunches; ++i) {
    if (i == kLaunches / 2) middle.record();
    launch_rate<N, kIsAInRegisters, kGroups>(buffers, n_blocks, n_chains, nullptr);
  }
  stop.record();
  cuda::check(cudaEventSynchronize(stop.get()));
  float ms = 0;
  cuda::check(cudaEventElapsedTime(&ms, middle.get(), stop.get()));
  const Span span = buffers.span.read()[0];
  const double flops = 2.0 * 64 * N * 16 * kGroups * n_chains * kStepsAChain * n_blocks;
  const std::string id = std::string("sustained, wgmma A ") +
                         (kIsAInRegisters ? "registers" : "shared") + ", N " + std::to_string(N) +
                         ", groups " + std::to_string(kGroups);
  figures.push_back({id, flops * (kLaunches - kLaunches / 2) / ms / 1e9, "TFLOP/s"});
  figures.push_back({id + ", clock", double(span.cycles) / double(span.ns) * 1e3, "MHz"});
}

}  // namespace

std::vector<Figure> measure_bandwidth() {
  constexpr size_t kBytes = size_t(4) << 30;
  constexpr size_t kCachedBytes = size_t(24) << 20;  // well inside L2
  const DeviceArray<uint4> in(kBytes / 16), out(kBytes / 16);
  fill(in.data(), kBytes);
  std::vector<Figure> figures;
  figures.push_back(
      best_move<true>("copy 4 GiB, read + written", in.data(), out.data(), kBytes, 1));
  const double ms = median_ms(9, [&] {
    cuda::check(cudaMemcpyAsync(out.data(), in.data(), kBytes, cudaMemcpyDeviceToDevice));
  });
  figures.push_back(
      {"copy 4 GiB by cudaMemcpyAsync, read + written", 2.0 * kBytes / ms / 1e9, "TB/s"});
  figures.push_back(best_move<false>("read 4 GiB", in.data(), out.data(), kBytes, 1));
  figures.push_back(
      best_move<false>("read 24 MiB again (L2)", in.data(), out.data(), kCachedBytes, 64));
  return figures;
}

std::vector<Figure> measure_product_rates() {
  const RateBuffers buffers;
  std::vector<Figure> figures;
  add_rate<256, true, 2>(figures, buffers);
  add_rate<256, false, 2>(figures, buffers);
  add_rate<256, true, 1>(figures, buffers);
  add_rate<256, false, 1>(figures, buffers);
  add_rate<128, true, 4>(figures, buffers);
  add_rate<128, false, 4>(figures, buffers);
  add_rate<128, true, 2>(figures, buffers);
  add_rate<128, false, 2>(figures, buffers);
  add_rate<64, true, 4>(figures, buffers);
  add_rate<64, false, 4>(figures, buffers);
  add_rate<32, true, 4>(figures, buffers);
  add_rate<16, true, 4>(figures, buffers);
  add_rate<8, true, 4>(figures, buffers);
  add_sustained_rate<256, false, 2>(figures, buffers);
  add_sustained_rate<128, true, 4>(figures, buffers);
  return figures;
}

struct Load::State {
  static constexpr size_t kCopyBytes = size_t(512) << 20;
  RateBuffers buffers;
  DeviceArray<uint4> from{kCopyBytes / 16}, to{kCopyBytes / 16};
  cudaStream_t products, copies;

  State() {
    cuda::check(cudaStreamCreateWithFlags(&products, cudaStreamNonBlocking));
    cuda::check(cudaStreamCreateWithFlags(&copies, cudaStreamNonBlocking));
    fill(from.data(), kCopyBytes);
    cuda::check(cudaDeviceSynchronize());
  }
  ~State() {
    cuda::check(cudaStreamDestroy(products));
    cuda::check(cudaStreamDestroy(copies));
  }
  State(const State&) = delete;
  State& operator=(const State&) = delete;
};

Load::Load() : state_(std::make_unique<State>()) {}
Load::~Load() {
  cuda::check(cudaDeviceSynchronize());
}

void Load::start() {
  constexpr int kTimes = 12;
  for (int i = 0; i < kTimes; ++i) {
    launch_rate<256, false, 2>(state_->buffers, n_multiprocessors() / 2, 500, state_->products);
    for (int copy = 0; copy < 8; ++copy)
      move_kernel<true><<<n_multiprocessors() / 2, 512, 0, state_->copies>>>(
          state_->from.data(), state_->to.data(), State::kCopyBytes / 16, 1);
    cuda::check_launch();
  }
}

bool Load::is_running() const {
  const cudaError_t products = cudaStreamQuery(state_->products);
  const cudaError_t copies = cudaStreamQuery(state_->copies);
  return products == cudaErrorNotReady || copies == cudaErrorNotReady;
}

}  // namespace roost::laws
