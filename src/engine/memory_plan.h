// The memory plan: how much of what is taken at start, from the flags and the machine.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "base/result.h"
#include "model/drafter.h"
#include "model/qwen35.h"

namespace roost {

struct EngineOptions {
  // Memory. Zeros are planned from what the machine has.
  int64_t context_max = 0;   // tokens of one sequence; 0: the model's
  int32_t streams_max = 16;  // sequences that run at once
  size_t memory_max = 0;     // bytes of everything, weights included; 0: what the machine has
  KvFormat kv = KvFormat::kActivation;
  size_t kv_bytes = 0;    // of K/V pages, cached ones included; 0: what streams and cache need
  bool has_cache = true;  // keep prefixes of earlier requests
  std::optional<size_t> cache_bytes;  // of pages and snapshots beside what running streams need;
                                      // absent: a third of what is left
  std::optional<size_t> cache_host_bytes;  // of host memory below the cache of a card; absent: up
                                           // to a quarter of what the host has left
  std::string cache_folder;                // keeps prefixes beyond the process; empty: nothing does
  uint64_t cache_disk_bytes = uint64_t{32} << 30;   // of its files
  uint64_t cache_write_bytes = uint64_t{64} << 20;  // written to them in a second at most
  int64_t snapshot_every = 2048;  // tokens between the states kept inside a long prompt

  // Steps.
  int64_t chunk_rows_max = 512;      // rows of one step
  int64_t gap_ns_max = 250'000'000;  // prompt rows beside streams are chosen so that a step takes
                                     // no longer than this
  bool has_drafts = true;            // guess tokens ahead; the tokens are the same either way
  std::shared_ptr<const DrafterWeights> drafter;  // null: only copies of earlier text are guessed
  std::shared_ptr<Hardware> hardware;  // null: the CPU, on n_threads. The weights lie in its memory
  std::function<void()> when_lost;     // null or called once on the engine's thread: the device is
                                       // lost, all requests have ended and no step will run again
  int n_threads = 0;                   // 0: all usable CPUs
  int64_t n_tokens = 0;                // ids [n_tokens, V) are padding and never drawn; 0: none are
  int64_t reserved_new_tokens =
      2048;  // a request starts with pages for its prompt and this many new tokens
  size_t queue_max = 64;
  int32_t turn_token = -1;  // begins a turn of a conversation: state is kept before such tokens
};

struct MemoryPlan {  // bytes, as printed at start
  size_t weights_mapped = 0, weights_owned = 0, pages = 0, slots = 0, snapshots = 0, scratch = 0,
         workspace = 0, staging = 0;
  int32_t n_pages = 0, n_slots = 0, n_snapshots = 0;
  int32_t n_pages_of_streams = 0;  // of the pages: what running streams are planned to need
  int64_t context_max = 0;
  // Of host memory below the prefix cache of a card; 0: the cache is in host memory itself.
  size_t host = 0;
  int32_t n_host_pages = 0, n_host_snapshots = 0;
  uint64_t disk = 0;     // of the files below the prefix cache; 0: none
  size_t available = 0;  // that could be taken beside the weights when it was planned; 0: unknown
  size_t cached_pages() const {  // bytes of pages beyond what running streams are planned to need
    if (n_pages == 0) return 0;
    return pages / static_cast<size_t>(n_pages) * static_cast<size_t>(n_pages - n_pages_of_streams);
  }
  size_t total() const {  // where the model runs
    return weights_mapped + weights_owned + pages + slots + snapshots + scratch + workspace +
           staging;
  }
};

// Rows of a sequence that its slot can hold back behind the stored state (see DeltaSpan).
inline constexpr int32_t kReplayRowsMax = 16;

// Rows of a step from which tokens are drawn: one a stream, and more where drafts are verified.
int64_t drawn_rows_max(const EngineOptions& options);

// Rows whose taps a slot can hold back from the drafter, and those that it takes in at once at
// most.
inline constexpr int32_t kWaitingRows = 32;
int64_t absorbed_rows_max(const EngineOptions& options);

// Packed rows of the recurrent layers in a step of that many rows and streams.
int64_t packed_rows_max(const EngineOptions& options);

// The largest calls that steps of this plan make; context_max of the options must be set.
OpsLimits step_limits(const ModelConfig& config, const EngineOptions& options);

// Fills what options leave open and computes the plan for a machine that has `available` bytes
// where the model runs (0: not known), and, where that is not host memory, host_available there.
// Refuses memory.too_small.
Result<MemoryPlan> plan_memory(const ModelWeights& weights, EngineOptions& options,
                               size_t available, size_t host_available = 0);

// Bytes that can be taken where the model runs, and of the host's memory where that is another.
struct Available {
  size_t here = 0, host = 0;
};
Available available_to(const EngineOptions& options);

}  // namespace roost
