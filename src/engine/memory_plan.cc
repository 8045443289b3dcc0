#include "engine/memory_plan.h"

#include <algorithm>
#include <string>

#include "base/memory.h"
#include "engine/prefix_disk.h"
#include "engine/speculation/copy_match.h"
#include "ops/attention/attention.h"

namespace roost {
namespace {

constexpr int64_t kOtherStreamTokens = 8192;  // K/V planned for each stream beside the first
constexpr int32_t kSnapshotsPerStream = 8;    // more are of no use before disk tiers exist
constexpr int64_t kVerifiedRows = 64;  // of a step: their logits are a megabyte each at 250K tokens
constexpr int32_t kHostTimes = 4;      // so much of what the card keeps is of use in host memory
constexpr int32_t kSnapshotsMin = 4;   // one conversation: system, query, header, reply

int64_t div_ceil(int64_t n, int64_t d) {
  return (n + d - 1) / d;
}

int64_t pages_of(int64_t n_tokens) {
  return div_ceil(n_tokens, kPageTokens);
}

void fill_options(const ModelConfig& c, EngineOptions& options) {
  if (options.context_max <= 0) options.context_max = c.context_max;
  options.context_max = std::min(options.context_max, Attention::kTokensMax);
  if (options.n_threads <= 0) options.n_threads = n_usable_cpus();
  if (options.n_tokens <= 0) options.n_tokens = c.vocabulary;
  options.chunk_rows_max = std::max<int64_t>(options.chunk_rows_max, options.streams_max);
  if (!options.has_drafts) options.drafter = nullptr;
}

// Bytes that pages and snapshots may take; SIZE_MAX: nobody knows.
size_t left_for_pages(const MemoryPlan& plan, const EngineOptions& options, size_t available) {
  const size_t weights = plan.weights_mapped + plan.weights_owned;
  const size_t fixed = plan.slots + plan.scratch + plan.workspace + plan.staging;
  size_t left = SIZE_MAX;
  if (options.memory_max > 0) {
    left = options.memory_max > weights ? options.memory_max - weights : 0;
  } else if (available > 0) {
    // Mapped weights count as available although they are about to be read. Weights beyond the
    // memory are read again and again anyway; a quarter of the memory is for the rest then.
    left = std::max(available - std::min(available, plan.weights_mapped), available / 4);
    left -= left / 10;  // for the system and for what is not planned to the byte
  }
  if (left == SIZE_MAX) return left;
  return left > fixed ? left - fixed : 0;
}

size_t page_bytes_of(const ModelConfig& c, const EngineOptions& options) {
  size_t n_bytes = ModelState::bytes_per_page(c, DType::kBF16, options.kv);
  if (options.drafter)
    n_bytes += DrafterState::bytes_per_page(options.drafter->config, DType::kBF16);
  return std::max<size_t>(n_bytes, 1);
}

size_t snapshot_bytes_of(const ModelConfig& c) {
  return std::max<size_t>(ModelState::bytes_per_slot(c, DType::kBF16, 0), 1);
}

// Half of it for states, as on the card.
void plan_host(const ModelConfig& c, const EngineOptions& options, size_t host_available,
               MemoryPlan& plan) {
  if (!options.has_cache || host_available == 0) return;
  const size_t n_bytes = options.cache_host_bytes.value_or(host_available / 4);
  const auto times = [&](size_t size, int32_t n_max) {
    return static_cast<int32_t>(std::min(n_bytes / 2 / size, static_cast<size_t>(n_max)));
  };
  const size_t page_bytes = page_bytes_of(c, options), snapshot_bytes = snapshot_bytes_of(c);
  plan.n_host_snapshots = times(snapshot_bytes, kHostTimes * plan.n_snapshots);
  plan.n_host_pages = times(page_bytes, kHostTimes * plan.n_pages);
  if (plan.n_host_snapshots == 0 || plan.n_host_pages == 0)
    plan.n_host_snapshots = plan.n_host_pages = 0;
  plan.host = static_cast<size_t>(plan.n_host_snapshots) * snapshot_bytes +
              static_cast<size_t>(plan.n_host_pages) * page_bytes;
}

void plan_pages(const ModelConfig& c, const EngineOptions& options, size_t left, MemoryPlan& plan) {
  const size_t page_bytes = page_bytes_of(c, options);
  const size_t snapshot_bytes = snapshot_bytes_of(c);
  const auto pages_in = [&](size_t n_bytes) { return static_cast<int64_t>(n_bytes / page_bytes); };
  const int64_t wanted =
      pages_of(options.context_max) +
      (options.streams_max - 1) * pages_of(std::min(kOtherStreamTokens, options.context_max));

  size_t cache_bytes = 0;
  if (options.has_cache) {
    const int64_t snapshots_wanted = kSnapshotsPerStream * options.streams_max + 16;
    cache_bytes = static_cast<size_t>(snapshots_wanted) * snapshot_bytes +
                  static_cast<size_t>(wanted) * page_bytes;
    if (options.cache_bytes) {
      cache_bytes = *options.cache_bytes;
    } else if (left != SIZE_MAX) {
      cache_bytes = std::min(cache_bytes, left / 3);
    }
    // Half of it for states, as a page holds the K/V of 64 tokens and a state serves thousands.
    plan.n_snapshots = static_cast<int32_t>(std::clamp<int64_t>(
        static_cast<int64_t>(cache_bytes / 2 / snapshot_bytes), kSnapshotsMin, snapshots_wanted));
  }
  plan.snapshots = static_cast<size_t>(plan.n_snapshots) * snapshot_bytes;
  const size_t cached_page_bytes = cache_bytes - std::min(cache_bytes, plan.snapshots);
  if (left != SIZE_MAX) left -= std::min(left, plan.snapshots);

  int64_t n_pages = wanted;
  if (left != SIZE_MAX)
    n_pages = std::min(n_pages, pages_in(left - std::min(left, cached_page_bytes)));
  plan.n_pages_of_streams = static_cast<int32_t>(std::max<int64_t>(n_pages, 1));
  n_pages += pages_in(cached_page_bytes);
  if (options.kv_bytes > 0) n_pages = pages_in(options.kv_bytes);
  n_pages = std::clamp<int64_t>(n_pages, 1, INT32_MAX / 2);
  plan.n_pages = static_cast<int32_t>(n_pages);
  plan.n_pages_of_streams = std::min(plan.n_pages_of_streams, plan.n_pages);
  plan.pages = static_cast<size_t>(n_pages) * page_bytes;
}

}  // namespace

int64_t packed_rows_max(const EngineOptions& options) {
  return options.chunk_rows_max + options.streams_max * int64_t{kReplayRowsMax};
}

int64_t drawn_rows_max(const EngineOptions& options) {
  if (!options.has_drafts) return options.streams_max;
  return std::max<int64_t>(options.streams_max,
                           std::min(int64_t{kReplayRowsMax} * options.streams_max, kVerifiedRows));
}

int64_t absorbed_rows_max(const EngineOptions& options) {
  return options.chunk_rows_max + options.streams_max * int64_t{kWaitingRows};
}

OpsLimits step_limits(const ModelConfig& config, const EngineOptions& options) {
  OpsLimits limits = Qwen35::ops_limits(config, options.chunk_rows_max);
  limits.context_max = options.context_max;
  if (options.drafter)
    Drafter::widen(options.drafter->config, absorbed_rows_max(options), drawn_rows_max(options),
                   limits);
  return limits;
}

Available available_to(const EngineOptions& options) {
  const size_t of_host = available_memory_bytes();
  if (!options.hardware || &options.hardware->device() == &host_device()) return {of_host, 0};
  return {options.hardware->device().available_bytes(), of_host};
}

Result<MemoryPlan> plan_memory(const ModelWeights& weights, EngineOptions& options,
                               size_t available, size_t host_available) {
  const ModelConfig& c = weights.config;
  fill_options(c, options);
  MemoryPlan plan;
  plan.available = available;
  plan.weights_mapped = weights.bytes_mapped;
  plan.weights_owned = weights.bytes_owned;
  plan.n_slots = options.streams_max;
  plan.slots = static_cast<size_t>(plan.n_slots) *
               ModelState::bytes_per_slot(c, DType::kBF16, kReplayRowsMax);
  plan.scratch =
      Qwen35::scratch_bytes(c, DType::kBF16, options.chunk_rows_max, packed_rows_max(options)) +
      static_cast<size_t>(drawn_rows_max(options) * c.vocabulary) * sizeof(float);
  if (options.has_drafts)
    plan.scratch +=
        static_cast<size_t>(options.streams_max) * CopyMatch::bytes_for(options.context_max);
  if (options.drafter) {
    const DrafterConfig& d = options.drafter->config;
    plan.weights_mapped += options.drafter->bytes_mapped;
    plan.weights_owned += options.drafter->bytes_owned;
    const int64_t tap_rows = options.chunk_rows_max + absorbed_rows_max(options) +
                             options.streams_max * int64_t{kWaitingRows};
    plan.scratch += Drafter::scratch_bytes(d, DType::kBF16, absorbed_rows_max(options),
                                           drawn_rows_max(options)) +
                    static_cast<size_t>(tap_rows * d.tap_width()) * size_of(DType::kBF16);
  }
  plan.workspace = options.hardware
                       ? options.hardware->workspace_bytes(step_limits(c, options))
                       : cpu_workspace_bytes(step_limits(c, options), options.n_threads);
  if (options.has_cache && !options.cache_folder.empty()) {
    plan.disk = options.cache_disk_bytes;
    plan.staging = PrefixDisk::staging_bytes(page_bytes_of(c, options),
                                             ModelState::bytes_per_slot(c, DType::kBF16, 0));
  }
  const size_t left = left_for_pages(plan, options, available);
  plan_pages(c, options, left, plan);
  plan_host(c, options, host_available, plan);
  options.context_max =
      std::min(options.context_max, static_cast<int64_t>(plan.n_pages) * kPageTokens);
  plan.context_max = options.context_max;

  const size_t to_take = plan.total() - plan.weights_mapped - plan.weights_owned;
  if (left != SIZE_MAX && plan.pages + plan.snapshots > left) {
    const size_t have = left + plan.slots + plan.scratch + plan.workspace + plan.staging;
    return Error{Refusal::MemoryTooSmall, "need " + std::to_string(to_take) +
                                              " bytes beside the weights, have " +
                                              std::to_string(have) +
                                              " (fewer --streams, a smaller --context or a smaller "
                                              "--cache-memory need less)"};
  }
  return plan;
}

}  // namespace roost
