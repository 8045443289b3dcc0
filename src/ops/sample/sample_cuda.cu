// The CUDA kernel of sample, plain: a block a row, in float64, with the filters of the contract as
// thresholds on one 64-bit key of a logit and its id.
#include <vector>

#include "ops/launch.cuh"
#include "ops/sample/draws.cuh"

namespace roost {
namespace {

using namespace cuda;

constexpr int kThreads = 512;
constexpr int kWarps = kThreads / 32;
constexpr int kBins = 2048;     // of falling weight, e^(-1/64) apart
constexpr int kPartIds = 4096;  // of a partial sum of S

struct SampleCall {
  const float* logits;
  const uint32_t* const* masks;  // or null; one for each row, or null
  const SampleParams* params;
  int32_t* tokens;
  double* weights;  // [blocks, n_tokens]
  uint64_t* keys;   // [blocks, n_keys_max]
  int64_t n_rows, n_vocabulary, n_tokens, n_keys_max;
};

// A row's logits: what its mask hides is -inf, but for what is not finite, which must be seen.
struct RowLogits {
  const float* logits;
  const uint32_t* mask;  // or null

  __device__ __forceinline__ float operator[](int64_t id) const {
    const float logit = logits[id];
    const bool is_hidden = mask != nullptr && (mask[id / 32] >> (id % 32) & 1) == 0;
    return is_hidden && isfinite(logit) ? -INFINITY : logit;
  }
};

// What the threads of the block share about their row.
struct RowState {
  uint64_t largest_of[kWarps];
  unsigned long long bins[kBins];
  double parts[kThreads];
  uint64_t largest;    // key of the largest logit; 0: none
  uint64_t threshold;  // keys from here on are left
  uint64_t picked;     // a digit, or a bin, found by one thread
  double total;
  int n_found, is_broken;
};

// The largest of one key a thread, for all; 0 is none.
__device__ uint64_t block_max(uint64_t key, RowState& s) {
  for (int step = 16; step > 0; step /= 2) key = max(key, __shfl_xor_sync(~0u, key, step));
  __syncthreads();
  if (threadIdx.x % 32 == 0) s.largest_of[threadIdx.x / 32] = key;
  __syncthreads();
  for (int w = 0; w < kWarps; ++w) key = max(key, s.largest_of[w]);
  return key;
}

// Also finds NaN and +inf.
__device__ void find_largest(const RowLogits& z, int64_t n, RowState& s) {
  uint64_t largest = 0;
  int is_broken = 0;
  for (int64_t id = threadIdx.x; id < n; id += kThreads) {
    if (isnan(z[id]) || z[id] == INFINITY) is_broken = 1;
    if (isfinite(z[id])) largest = max(largest, key_of(z[id], int32_t(id)));
  }
  largest = block_max(largest, s);
  is_broken = __syncthreads_or(is_broken);
  if (threadIdx.x == 0) {
    s.largest = largest;
    s.is_broken = is_broken || largest == 0;
    s.threshold = 1;
  }
  __syncthreads();
}

// The k-th largest key becomes the threshold: one digit of eight bits a round.
__device__ void keep_top_k(const RowLogits& z, int64_t n, int64_t k, RowState& s) {
  uint64_t prefix = 0;
  int64_t n_left = k;
  for (int shift = 56; shift >= 0; shift -= 8) {
    for (int b = threadIdx.x; b < 256; b += kThreads) s.bins[b] = 0;
    __syncthreads();
    for (int64_t id = threadIdx.x; id < n; id += kThreads) {
      if (!isfinite(z[id])) continue;
      const uint64_t key = key_of(z[id], int32_t(id));
      const bool has_prefix = shift == 56 || key >> (shift + 8) == prefix >> (shift + 8);
      if (has_prefix) atomicAdd(&s.bins[key >> shift & 255], 1ull);
    }
    __syncthreads();
    if (threadIdx.x == 0) {
      int digit = 255;
      int64_t n_above = 0;
      while (digit > 0 && n_above + int64_t(s.bins[digit]) < n_left)
        n_above += int64_t(s.bins[digit--]);
      s.picked = uint64_t(digit);
      s.n_found = int(n_left - n_above);
    }
    __syncthreads();
    prefix |= s.picked << shift;
    n_left = s.n_found;
    __syncthreads();
  }
  // Fewer than k finite logits: digits run out at zeros, and all are left.
  if (threadIdx.x == 0) s.threshold = max(prefix, uint64_t(1));
  __syncthreads();
}

// Weights of what is left, 0 elsewhere.
__device__ void weigh(const RowLogits& z, int64_t n, double temperature, const RowState& s,
                      double* weights) {
  const double largest = z[id_of(s.largest)];
  for (int64_t id = threadIdx.x; id < n; id += kThreads) {
    const bool is_left = isfinite(z[id]) && key_of(z[id], int32_t(id)) >= s.threshold;
    weights[id] = is_left ? exp((double(z[id]) - largest) / temperature) : 0.0;
  }
  __syncthreads();
}

// S: a thread a part of 4096 ids, then the parts in order. Zeros add exactly nothing.
__device__ void add_up(const double* weights, int64_t n, RowState& s) {
  const int n_parts = int((n + kPartIds - 1) / kPartIds);
  double total = 0;
  for (int first = 0; first < n_parts; first += kThreads) {
    const int part = first + threadIdx.x;
    double sum = 0;
    for (int64_t id = int64_t(part) * kPartIds; id < min(n, int64_t(part + 1) * kPartIds); ++id)
      sum += weights[id];
    s.parts[threadIdx.x] = sum;
    __syncthreads();
    for (int i = 0; i < min(kThreads, n_parts - first); ++i) total += s.parts[i];
    __syncthreads();
  }
  if (threadIdx.x == 0) s.total = total;
  __syncthreads();
}

__device__ __forceinline__ int bin_of(double logit, double largest, double temperature) {
  return int(fmin((largest - logit) / temperature * 64, double(kBins - 1)));
}

// The least bin behind which nothing can be in the prefix of top_p: sums of the weights as integers
// of 2^-40, rounded down, are already beyond what is wanted, by more than any rounding of the exact
// sum in falling order.
__device__ int last_bin(const RowLogits& z, const double* weights, int64_t n, double wanted,
                        double temperature, RowState& s) {
  for (int b = threadIdx.x; b < kBins; b += kThreads) s.bins[b] = 0;
  __syncthreads();
  const double largest = z[id_of(s.largest)];
  for (int64_t id = threadIdx.x; id < n; id += kThreads) {
    if (weights[id] > 0)
      atomicAdd(&s.bins[bin_of(z[id], largest, temperature)],
                static_cast<unsigned long long>(weights[id] * 0x1p40));
  }
  __syncthreads();
  if (threadIdx.x == 0) {
    unsigned long long sum = 0;
    int bin = 0;
    while (bin < kBins - 1 && !(double(sum += s.bins[bin]) * 0x1p-40 >= wanted * (1 + 1e-9))) ++bin;
    s.picked = uint64_t(bin);
    s.n_found = 0;
  }
  __syncthreads();
  return int(s.picked);
}

// keys[0 .. n) falling, n a power of two: a bitonic network.
__device__ void sort_falling(uint64_t* keys, int64_t n) {
  for (int64_t size = 2; size <= n; size *= 2) {
    for (int64_t step = size / 2; step > 0; step /= 2) {
      for (int64_t at = threadIdx.x; at < n / 2; at += kThreads) {
        const int64_t i = at / step * 2 * step + at % step, j = i + step;
        const bool is_falling = (i & size) == 0;
        const uint64_t a = keys[i], b = keys[j];
        if ((a < b) == is_falling) {
          keys[i] = b;
          keys[j] = a;
        }
      }
      __syncthreads();
    }
  }
}

// The shortest prefix, in falling order, whose sum reaches top_p·S, at least one.
__device__ void keep_top_p(const RowLogits& z, const double* weights, int64_t n,
                           const SampleParams& p, uint64_t* keys, RowState& s) {
  add_up(weights, n, s);
  const double wanted = p.top_p * s.total;
  const int bin = last_bin(z, weights, n, wanted, p.temperature, s);
  const double largest = z[id_of(s.largest)];
  for (int64_t id = threadIdx.x; id < n; id += kThreads) {
    if (!isfinite(z[id]) || key_of(z[id], int32_t(id)) < s.threshold) continue;
    if (bin_of(z[id], largest, p.temperature) <= bin)
      keys[atomicAdd(&s.n_found, 1)] = key_of(z[id], int32_t(id));
  }
  __syncthreads();
  int64_t n_sorted = 1;
  while (n_sorted < s.n_found) n_sorted *= 2;
  for (int64_t i = s.n_found + threadIdx.x; i < n_sorted; i += kThreads) keys[i] = 0;
  __syncthreads();
  sort_falling(keys, n_sorted);
  if (threadIdx.x == 0) {
    double sum = 0;
    int n_kept = 0;
    while (n_kept < s.n_found && (n_kept == 0 || sum < wanted))
      sum += weights[id_of(keys[n_kept++])];
    s.threshold = keys[n_kept - 1];
  }
  __syncthreads();
}

// The id with the largest z/T + noise of what is left, ties to the lower id.
__device__ int32_t draw(const RowLogits& z, const double* weights, int64_t n, const SampleParams& p,
                        RowState& s) {
  double best = 0;
  int32_t winner = -1;
  for (int64_t id = threadIdx.x; id < n; id += kThreads) {
    if (!isfinite(z[id]) || key_of(z[id], int32_t(id)) < s.threshold) continue;
    if (weights[id] < p.min_p) continue;
    const double value = double(z[id]) / p.temperature + noise_of(p.seed, p.position, int32_t(id));
    if (winner < 0 || value > best) best = value, winner = int32_t(id);
  }
  auto* winners = reinterpret_cast<int32_t*>(s.bins);
  __syncthreads();
  s.parts[threadIdx.x] = best;
  winners[threadIdx.x] = winner;
  __syncthreads();
  for (int i = 0; i < kThreads; ++i) {
    if (winners[i] < 0) continue;
    const bool is_better =
        winner < 0 || s.parts[i] > best || (s.parts[i] == best && winners[i] < winner);
    if (is_better) best = s.parts[i], winner = winners[i];
  }
  return winner;
}

__device__ int32_t sample_row(const SampleCall& c, int64_t row, double* weights, uint64_t* keys,
                              RowState& s) {
  const RowLogits z{c.logits + row * c.n_vocabulary, c.masks == nullptr ? nullptr : c.masks[row]};
  const SampleParams p = c.params[row];
  find_largest(z, c.n_tokens, s);
  if (s.is_broken) return -1;
  if (p.temperature == 0) return id_of(s.largest);
  if (p.top_k > 0 && p.top_k < c.n_tokens) keep_top_k(z, c.n_tokens, p.top_k, s);
  weigh(z, c.n_tokens, p.temperature, s, weights);
  if (p.top_p < 1) keep_top_p(z, weights, c.n_tokens, p, keys, s);
  return draw(z, weights, c.n_tokens, p, s);
}

__global__ void __launch_bounds__(kThreads) sm80_sample(SampleCall c) {
  wait_for_inputs();
  __shared__ RowState state;
  double* weights = c.weights + blockIdx.x * c.n_tokens;
  uint64_t* keys = c.keys + blockIdx.x * c.n_keys_max;
  for (int64_t row = blockIdx.x; row < c.n_rows; row += gridDim.x) {
    const int32_t token = sample_row(c, row, weights, keys, state);
    if (threadIdx.x == 0) c.tokens[row] = token;
    __syncthreads();
  }
}

int64_t power_of_two(int64_t n) {
  int64_t power = 1;
  while (power < n) power *= 2;
  return power;
}

size_t block_bytes(int64_t n_tokens) {
  return static_cast<size_t>(n_tokens + power_of_two(n_tokens)) * 8;
}

}  // namespace

size_t sample_cuda_scratch_bytes(int64_t vocabulary) {
  return block_bytes(vocabulary) + 2 * DeviceArena::kAlign;
}

void sample_cuda(const Sample& op, CudaContext& context) {
  const DeviceArena::Scope scope(context.scratch);
  SampleCall call{.logits = f32_data(op.logits), .params = context.push(op.params)};
  std::vector<const uint32_t*> masks;
  for (const uint32_t* mask : op.masks) {
    const auto n_words = static_cast<size_t>((op.n_tokens + 31) / 32);
    masks.push_back(mask == nullptr ? nullptr : context.push(std::span(mask, n_words)));
  }
  if (!masks.empty()) call.masks = context.push(std::span<const uint32_t* const>(masks));
  call.tokens = i32_data(op.tokens);
  call.n_rows = op.logits.dim(0);
  call.n_vocabulary = op.logits.dim(1);
  call.n_tokens = op.n_tokens;
  call.n_keys_max = power_of_two(op.n_tokens);
  const size_t n_fit =
      (context.scratch.n_left() - 2 * DeviceArena::kAlign) / block_bytes(op.n_tokens);
  ROOST_CHECK(n_fit >= 1);
  const unsigned n_blocks =
      std::min(grid_of(context, call.n_rows), static_cast<unsigned>(std::min<size_t>(n_fit, 4096)));
  call.weights = context.scratch.take<double>(n_blocks * static_cast<size_t>(call.n_tokens));
  call.keys = context.scratch.take<uint64_t>(n_blocks * static_cast<size_t>(call.n_keys_max));
  launch_kernel(context, sm80_sample, n_blocks, kThreads, 0, call);
}

}  // namespace roost
