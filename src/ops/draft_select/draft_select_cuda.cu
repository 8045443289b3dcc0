// The CUDA kernels of draft_select: rounds of sorted chunks leave the candidates of every row, then
// a block a walk scores and draws in float64.
#include "ops/launch.cuh"
#include "ops/sample/draws.cuh"

namespace roost {
namespace {

using namespace cuda;

constexpr int kSortThreads = 256;
constexpr int kChunk = 2048;  // keys of a block
constexpr int kWalkThreads = 128;
constexpr int kCandidatesMax = int(DraftSelect::kCandidatesMax);
constexpr int kRanksMax = 1024;
constexpr uint64_t kBroken = ~uint64_t{0};  // NaN or +inf: in front of all keys
static_assert(kWalkThreads >= kCandidatesMax);

struct RoundCall {
  const float* logits;   // of the first round, [rows, stride], else null
  const uint64_t* from;  // of later ones, [rows, n]
  uint64_t* to;          // [rows, n_chunks · k]
  int64_t n_rows, n, stride, n_chunks;
  int k;
};

__device__ __forceinline__ uint64_t key_at(const RoundCall& c, int64_t row, int64_t i) {
  if (i >= c.n) return 0;
  if (c.logits == nullptr) return c.from[row * c.n + i];
  const float logit = c.logits[row * c.stride + i];
  return logit < INFINITY ? key_of(logit, int32_t(i)) : kBroken;  // NaN is not less
}

// The k largest keys of each chunk, falling.
__global__ void __launch_bounds__(kSortThreads) sm80_draft_candidates(RoundCall c) {
  wait_for_inputs();
  __shared__ uint64_t keys[kChunk];
  for (int64_t item = blockIdx.x; item < c.n_rows * c.n_chunks; item += gridDim.x) {
    const int64_t row = item / c.n_chunks, first = item % c.n_chunks * kChunk;
    __syncthreads();  // the chunk before has been read
    for (int i = threadIdx.x; i < kChunk; i += kSortThreads) keys[i] = key_at(c, row, first + i);
    for (int run = 2; run <= kChunk; run *= 2) {
      for (int step = run / 2; step > 0; step /= 2) {
        __syncthreads();
        for (int p = threadIdx.x; p < kChunk / 2; p += kSortThreads) {
          const int i = 2 * p - p % step, j = i + step;
          const bool is_falling = (i & run) == 0;
          const uint64_t a = keys[i], b = keys[j];
          if ((a < b) == is_falling && a != b) keys[i] = b, keys[j] = a;
        }
      }
    }
    __syncthreads();
    for (int i = threadIdx.x; i < c.k; i += kSortThreads) c.to[item * c.k + i] = keys[i];
  }
}

struct WalkCall {
  const uint64_t* keys;  // [rows, k]
  const float *logits, *hidden;
  WeightView predecessor, successor;
  const DraftWalk* walks;
  int32_t *ids, *tokens;
  float* scores;
  int64_t n_walks, n_vocabulary, rank;
  double multiplier, softcap;
  int k;
};

// As QuantMatrix::decode: exact.
__device__ double decoded(const WeightView& w, int64_t row, int64_t col) {
  if (!w.is_affine) return number_at(w.codes, row * w.n_in + col, w.is_f32);
  const uint64_t codes = eight_codes(w.codes + row * w.row_bytes + col / 8 * w.bits, w.bits);
  const int64_t at = row * w.n_groups + col / w.group;
  const auto code = uint32_t(codes >> (col % 8 * w.bits)) & ((1u << w.bits) - 1);
  return double(number_at(w.scales, at, w.is_f32)) * double(code) +
         double(number_at(w.biases, at, w.is_f32));
}

// What the threads of the block share about the row of their walk.
struct WalkRow {
  double products[kRanksMax];  // predecessor · hidden
  double scores[kCandidatesMax], weights[kCandidatesMax], values[kCandidatesMax];
  int32_t ids[kCandidatesMax];
  int order[kCandidatesMax];  // by falling score, ties: earlier first
  int32_t previous;
};

// Σ over the ranks, ascending. All threads call it.
__device__ double pair_score(const WalkCall& c, int64_t row, WalkRow& s) {
  double sum = 0;
  for (int64_t first = 0; first < c.rank; first += kRanksMax) {
    const int64_t n = min(int64_t(kRanksMax), c.rank - first);
    __syncthreads();  // the products before have been read
    for (int64_t r = threadIdx.x; r < n; r += kWalkThreads)
      s.products[r] = decoded(c.predecessor, s.previous, first + r) *
                      double(c.hidden[row * c.rank + first + r]);
    __syncthreads();
    if (int(threadIdx.x) >= c.k) continue;
    for (int64_t r = 0; r < n; ++r)
      sum += s.products[r] * decoded(c.successor, s.ids[threadIdx.x], first + r);
  }
  return sum;
}

// Index of the candidate that is drawn, from what the threads have prepared.
__device__ int draw(const WalkCall& c, const SampleParams& p, const WalkRow& s) {
  if (p.temperature == 0) return s.order[0];
  int n = p.top_k > 0 ? min(c.k, p.top_k) : c.k;
  if (p.top_p < 1) {
    double total = 0, sum = 0;
    for (int i = 0; i < n; ++i) total += s.weights[s.order[i]];
    const double wanted = p.top_p * total;
    int n_kept = 0;
    do sum += s.weights[s.order[n_kept++]];
    while (n_kept < n && sum < wanted);
    n = n_kept;
  }
  int winner = s.order[0];
  double best = -INFINITY;
  for (int i = 0; i < n; ++i) {
    const int at = s.order[i];
    if (s.weights[at] < p.min_p) break;  // weights fall
    if (s.values[at] > best) winner = at, best = s.values[at];
  }
  return winner;
}

// A row without a draft. All threads call it.
__device__ void leave_out(const WalkCall& c, int64_t row, WalkRow& s) {
  const int i = threadIdx.x;
  if (i < c.k) c.ids[row * c.k + i] = -1, c.scores[row * c.k + i] = NAN;
  __syncthreads();  // `previous` has been read
  if (i == 0) c.tokens[row] = s.previous = -1;
  __syncthreads();
}

// One row of a walk: writes its candidates, scores and token.
__device__ void walk_row(const WalkCall& c, const SampleParams& p, int64_t row, int64_t position,
                         WalkRow& s) {
  const int i = threadIdx.x;
  const bool is_one = i < c.k;
  const uint64_t first = c.keys[row * c.k], last = c.keys[row * c.k + c.k - 1];
  const bool is_broken = s.previous < 0 || first == kBroken || last <= key_of(-INFINITY, 0);
  if (is_broken) return leave_out(c, row, s);
  if (is_one) s.ids[i] = id_of(c.keys[row * c.k + i]);
  const double pair = c.rank > 0 ? pair_score(c, row, s) : 0.0;
  if (is_one) {
    double u = c.multiplier * double(c.logits[row * c.n_vocabulary + s.ids[i]]);
    if (c.softcap > 0) u = c.softcap * tanh(u / c.softcap);
    s.scores[i] = u + pair;
    c.ids[row * c.k + i] = s.ids[i];
    c.scores[row * c.k + i] = float(s.scores[i]);
  }
  if (__syncthreads_or(is_one && !isfinite(s.scores[i]))) return leave_out(c, row, s);
  if (is_one) {
    int place = 0;
    for (int j = 0; j < c.k; ++j)
      place += s.scores[j] > s.scores[i] || (s.scores[j] == s.scores[i] && j < i);
    s.order[place] = i;
  }
  __syncthreads();
  if (is_one && p.temperature != 0) {
    s.weights[i] = exp((s.scores[i] - s.scores[s.order[0]]) / p.temperature);
    s.values[i] = s.scores[i] / p.temperature + noise_of(p.seed, position, s.ids[i]);
  }
  __syncthreads();
  if (i == 0) c.tokens[row] = s.previous = s.ids[draw(c, p, s)];
  __syncthreads();
}

__global__ void __launch_bounds__(kWalkThreads) sm80_draft_walk(WalkCall c) {
  wait_for_inputs();
  __shared__ WalkRow shared;
  for (int64_t w = blockIdx.x; w < c.n_walks; w += gridDim.x) {
    const DraftWalk walk = c.walks[w];
    if (threadIdx.x == 0) shared.previous = walk.anchor;
    __syncthreads();
    for (int32_t j = 0; j < walk.n_rows; ++j)
      walk_row(c, walk.params, int64_t(walk.first_row) + j, walk.params.position + j, shared);
  }
}

int64_t n_chunks_of(int64_t n) {
  return (n + kChunk - 1) / kChunk;
}

}  // namespace

size_t draft_select_cuda_scratch_bytes(int64_t rows, int64_t vocabulary) {
  const int64_t n_keys = n_chunks_of(vocabulary) * kCandidatesMax;
  return static_cast<size_t>(rows * (n_keys + n_chunks_of(n_keys) * kCandidatesMax)) * 8 +
         2 * DeviceArena::kAlign;
}

void draft_select_cuda(const DraftSelect& op, CudaContext& context) {
  if (op.walks.empty()) return;
  const DeviceArena::Scope scope(context.scratch);
  const int64_t n_rows = op.logits.dim(0);
  RoundCall round{.logits = f32_data(op.logits), .n_rows = n_rows, .n = op.n_tokens};
  round.stride = op.logits.dim(1);
  round.k = static_cast<int>(op.ids.dim(1));
  // Two places take turns: a round leaves fewer keys than the one in front of it.
  uint64_t* places[2] = {};
  for (int i = 0; round.logits != nullptr || round.n > round.k; ++i) {
    round.n_chunks = n_chunks_of(round.n);
    uint64_t*& place = places[i % 2];
    if (place == nullptr)
      place =
          context.scratch.take<uint64_t>(static_cast<size_t>(n_rows * round.n_chunks * round.k));
    round.to = place;
    launch_kernel(context, sm80_draft_candidates, grid_of(context, n_rows * round.n_chunks),
                  kSortThreads, 0, round);
    round.logits = nullptr;
    round.from = round.to;
    round.n = round.n_chunks * round.k;
  }
  WalkCall call{.keys = round.from, .logits = f32_data(op.logits), .hidden = f32_data(op.hidden)};
  if (op.hidden.exists()) {
    call.predecessor = view_of(*op.predecessor);
    call.successor = view_of(*op.successor);
    call.rank = op.hidden.dim(1);
  }
  call.walks = context.push(op.walks);
  call.ids = i32_data(op.ids);
  call.tokens = i32_data(op.tokens);
  call.scores = f32_data(op.scores);
  call.n_walks = static_cast<int64_t>(op.walks.size());
  call.n_vocabulary = op.logits.dim(1);
  call.multiplier = op.multiplier;
  call.softcap = op.softcap;
  call.k = round.k;
  launch_kernel(context, sm80_draft_walk, grid_of(context, call.n_walks), kWalkThreads, 0, call);
}

}  // namespace roost
