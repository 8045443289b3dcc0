// The program: reads the command line and hands it to the command.
#include <fmt/format.h>

#include <cstdio>
#include <map>

#include "apps/bench.h"
#include "apps/bench_serve.h"
#include "apps/command_line.h"
#include "apps/complain.h"
#include "apps/engine_options.h"
#include "apps/flag_pages.h"
#include "apps/inspect.h"
#include "apps/run.h"
#include "apps/serve.h"
#include "apps/synth.h"
#include "base/log.h"
#include "base/memory.h"

namespace roost {
namespace {

Result<void> apply_log_flags(const CommandLine& line) {
  const std::map<std::string, LogLevel> levels = {
      {"", line.command == kServe ? LogLevel::kInfo : LogLevel::kWarning},
      {"error", LogLevel::kError},
      {"warning", LogLevel::kWarning},
      {"info", LogLevel::kInfo},
      {"debug", LogLevel::kDebug}};
  const auto level = levels.find(line.flags.log_level);
  if (level == levels.end())
    return Error{Refusal::FlagValue, "--log-level: want error, warning, info or debug"};
  set_log_level(level->second);
  if (line.flags.log_format != "text" && line.flags.log_format != "json")
    return Error{Refusal::FlagValue, "--log-format: want text or json"};
  set_log_format(line.flags.log_format == "json" ? LogFormat::kJson : LogFormat::kText);
  return {};
}

int run_bench_of(const CommandLine& line) {
  const Flags& flags = line.flags;
  BenchOptions options;
  options.model = line.model;
  options.device = flags.device;
  options.n_layers = flags.layers;
  options.prompt_rows = flags.prompt_rows;
  options.chunk_rows = flags.chunk_rows;
  options.decode_rows = flags.decode_rows;
  options.context = flags.context;
  options.n_threads = static_cast<int>(flags.threads);
  options.repetitions = static_cast<int>(flags.repetitions);
  options.json = flags.json;
  options.part = flags.part;
  const Result<KvFormat> kv = kv_format_of(flags);
  if (!kv) return complain(kv.error());
  options.kv = *kv;
  return run_bench(options);
}

int run_inspect_of(const CommandLine& line) {
  Result<EngineOptions> engine = engine_options_of(line.flags);
  if (!engine) return complain(engine.error());
  InspectOptions options;
  options.load.folder = line.model;
  options.load.drafter = line.flags.drafter;
  options.load.drafter_bits = line.flags.drafter_bits;
  options.load.engine = std::move(*engine);
  options.lists_tensors = line.flags.lists_tensors;
  options.is_plan_alone = line.flags.plan;
  return run_inspect(options);
}

int run_synth_of(const CommandLine& line) {
  const Flags& flags = line.flags;
  SynthOptions options;
  options.folder = line.model;
  options.fledgling_folder = flags.fledgling;
  options.synthetic.shape = line.shape;
  options.synthetic.n_layers = flags.layers;
  options.synthetic.bits = static_cast<int>(flags.bits);
  options.synthetic.group = static_cast<int>(flags.group);
  options.synthetic.seed = flags.synth_seed;
  options.synthetic.has_experts = !flags.is_dense;
  options.synthetic.n_heads = flags.heads;
  options.synthetic.n_shards = flags.shards;
  return run_synth(options);
}

int print_completion(const std::string& shell) {
  const Result<std::string> script = completion_script(shell);
  if (!script) return complain(script.error());
  fmt::print("{}", *script);
  return 0;
}

int run_program(int argc, char** argv) {
  const Result<CommandLine> line = parse_command_line(argc, argv);
  if (!line) return complain(line.error());
  if (line->text_to_print) {
    fmt::print("{}", *line->text_to_print);
    return 0;
  }
  if (const Result<void> applied = apply_log_flags(*line); !applied)
    return complain(applied.error());
  switch (line->command) {
    case kServe:
      return run_serve(*line);
    case kRun:
      return run_run(*line);
    case kBench:
      return run_bench_of(*line);
    case kBenchServe:
      return run_bench_serve(*line);
    case kCompletion:
      return print_completion(line->shape);
    case kMan:
      fmt::print("{}", man_page());
      return 0;
    case kInspect:
      return run_inspect_of(*line);
    case kSynth:
      return run_synth_of(*line);
  }
  return kExitBadCommandLine;
}

}  // namespace
}  // namespace roost

int main(int argc, char** argv) {
  return roost::run_program(argc, argv);
}
