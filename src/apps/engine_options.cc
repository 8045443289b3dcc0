#include "apps/engine_options.h"

#include <fmt/format.h>

#include "base/limits.h"
#include "ops/attention/attention.h"

namespace roost {
namespace {

constexpr int64_t kMiBMax = int64_t{1} << 30;
constexpr int64_t kGapMsMax = 60'000;

size_t bytes_of(int64_t n_mib) {
  return static_cast<size_t>(n_mib) << 20;
}

}  // namespace

Result<void> check_range(const char* flag, int64_t value, int64_t low, int64_t high) {
  if (value >= low && value <= high) return {};
  return Error{Refusal::FlagValue,
               fmt::format("{}: have {}, want {} to {}", flag, value, low, high)};
}

Result<KvFormat> kv_format_of(const Flags& flags) {
  if (flags.kv == "bf16") return KvFormat::kActivation;
  if (flags.kv != "int8")
    return Error{Refusal::FlagValue, fmt::format("--kv: have {}, want bf16 or int8", flags.kv)};
  if (flags.device == "cpu") return KvFormat::kInt8;
  return Error{Refusal::FlagValue,
               fmt::format("--kv int8: --device {} has no kernels for it, cpu has", flags.device)};
}

Result<GenerationDefaults> sampling_of(const Flags& flags) {
  const auto check = [](const char* flag, const std::optional<double>& value, double low,
                        double high) -> Result<void> {
    if (!value || (*value >= low && *value <= high)) return {};
    return Error{Refusal::FlagValue,
                 fmt::format("{}: have {}, want {} to {}", flag, *value, low, high)};
  };
  ROOST_TRY_DO(check("--temperature", flags.temperature, 0, 5));
  ROOST_TRY_DO(check("--top-p", flags.top_p, 0, 1));
  ROOST_TRY_DO(check("--min-p", flags.min_p, 0, 1));
  ROOST_TRY_DO(check("--presence-penalty", flags.presence_penalty, -2, 2));
  ROOST_TRY_DO(check("--frequency-penalty", flags.frequency_penalty, -2, 2));
  ROOST_TRY_DO(check("--repetition-penalty", flags.repetition_penalty, 0.001, 10));
  ROOST_TRY_DO(check_range("--top-k", flags.top_k.value_or(0), 0, INT32_MAX));
  GenerationDefaults out;
  out.temperature = flags.temperature;
  out.top_p = flags.top_p;
  out.min_p = flags.min_p;
  out.top_k = flags.top_k;
  out.presence_penalty = flags.presence_penalty;
  out.frequency_penalty = flags.frequency_penalty;
  out.repetition_penalty = flags.repetition_penalty;
  return out;
}

Result<EngineOptions> engine_options_of(const Flags& flags) {
  ROOST_TRY_DO(check_range("--threads", flags.threads, 0, 4096));
  ROOST_TRY_DO(check_range("--context", flags.context, 0, Attention::kTokensMax));
  ROOST_TRY_DO(check_range("--streams", flags.streams, 1, 4096));
  ROOST_TRY_DO(check_range("--queue-size", flags.queue_size, 1, 1'000'000));
  ROOST_TRY_DO(check_range("--max-memory", flags.max_memory, 0, kMiBMax));
  ROOST_TRY_DO(check_range("--kv-mib", flags.kv_mib, 0, kMiBMax));
  ROOST_TRY_DO(check_range("--cache-memory", flags.cache_memory, -1, kMiBMax));
  ROOST_TRY_DO(check_range("--cache-host", flags.cache_host, -1, kMiBMax));
  if (flags.cache_host > 0 && flags.device == "cpu")
    return Error{Refusal::FlagValue,
                 "--cache-host: with --device cpu the prefix cache is in host memory already, see "
                 "--cache-memory"};
  ROOST_TRY_DO(check_range("--cache-disk", flags.cache_disk, 1, kMiBMax));
  ROOST_TRY_DO(check_range("--cache-write", flags.cache_write, 1, kMiBMax));
  ROOST_TRY_DO(check_range("--snapshot-every", flags.snapshot_every, 64, limits::kContextMax));
  ROOST_TRY_DO(check_range("--chunk-ms", flags.chunk_ms, 1, kGapMsMax));
  EngineOptions out;
  ROOST_TRY(out.kv, kv_format_of(flags));
  out.n_threads = static_cast<int>(flags.threads);
  out.context_max = flags.context;
  out.streams_max = static_cast<int32_t>(flags.streams);
  out.queue_max = static_cast<size_t>(flags.queue_size);
  out.memory_max = bytes_of(flags.max_memory);
  out.kv_bytes = bytes_of(flags.kv_mib);
  out.has_cache = !flags.no_cache;
  out.has_drafts = !flags.no_drafts;
  out.cache_folder = flags.cache_dir;
  out.cache_disk_bytes = bytes_of(flags.cache_disk);
  out.cache_write_bytes = bytes_of(flags.cache_write);
  if (flags.cache_memory >= 0) out.cache_bytes = bytes_of(flags.cache_memory);
  if (flags.cache_host >= 0) out.cache_host_bytes = bytes_of(flags.cache_host);
  out.snapshot_every = flags.snapshot_every;
  out.gap_ns_max = flags.chunk_ms * 1'000'000;
  return out;
}

}  // namespace roost
