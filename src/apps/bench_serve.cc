#include "apps/bench_serve.h"

#include <fmt/format.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <sstream>

#include "apps/bench_figures.h"
#include "apps/bench_load.h"
#include "apps/complain.h"
#include "base/file.h"

namespace roost {

namespace {

constexpr size_t kTextBytesMax = size_t{64} << 20;
constexpr size_t kAgreementPrompts = 4;

// A server that runs already, or one of our own that ends with this.
class Subject {
 public:
  // target: an address, or a model's folder that is served with these flags.
  static Result<std::unique_ptr<Subject>> start(const std::string& target, const std::string& flags,
                                                std::string key) {
    std::unique_ptr<Subject> out(new Subject());
    if (target.starts_with("http://")) {
      ROOST_TRY(out->target_, parse_target(target, std::move(key)));
    } else {
      ROOST_TRY_DO(out->spawn(target, flags, std::move(key)));
    }
    ROOST_TRY_DO(ask(out->target_, "GET", "/health"));
    return out;
  }
  ~Subject() {
    if (pid_ <= 0) return;
    ::kill(pid_, SIGTERM);
    ::waitpid(pid_, nullptr, 0);
  }
  const BenchTarget& target() const { return target_; }
  bool is_own() const { return pid_ > 0; }

  // A line such as VmHWM of its process, in bytes; 0 when the process is another's.
  int64_t status_bytes(const std::string& name) const {
    std::ifstream file(fmt::format("/proc/{}/status", pid_));
    for (std::string line; pid_ > 0 && std::getline(file, line);)
      if (line.starts_with(name + ":")) return std::atoll(line.c_str() + name.size() + 1) * 1024;
    return 0;
  }

 private:
  Subject() = default;
  Result<void> spawn(const std::string& model, const std::string& flags, std::string key) {
    std::vector<std::string> words = {"roost", "serve",       model,    "--port",
                                      "0",     "--log-level", "warning"};
    std::istringstream rest(flags);
    for (std::string one; rest >> one;) words.push_back(one);
    std::vector<char*> arguments;
    for (std::string& one : words) arguments.push_back(one.data());
    arguments.push_back(nullptr);
    int out[2];
    if (::pipe(out) != 0) return Error{Refusal::FlagValue, "no pipe for the server's output"};
    pid_ = ::fork();
    if (pid_ == 0) {
      ::dup2(out[1], STDOUT_FILENO);
      ::close(out[0]), ::close(out[1]);
      ::execv("/proc/self/exe", arguments.data());
      ::_exit(127);
    }
    ::close(out[1]);
    std::string line;
    for (char c = 0; ::read(out[0], &c, 1) == 1 && c != '\n';) line += c;
    ::close(out[0]);
    const size_t at = line.find("http://");
    if (at == std::string::npos)
      return Error{Refusal::FlagValue, fmt::format("{} is not served: {}", model, line)};
    ROOST_TRY(target_, parse_target(line.substr(at), std::move(key)));
    return {};
  }

  BenchTarget target_;
  pid_t pid_ = -1;
};

struct Plan {
  BenchPromptOptions prompts;
  BenchGoals goals;
  std::vector<double> concurrency, rates;
  int64_t n_requests = 0, n_warm_up = 0, n_runs = 0, n_turns = 0;
  double trace_scale = 0;
  uint64_t seed = 0;
  bool has_warm = false;
};

Result<std::vector<double>> numbers_of(const char* flag, const std::string& text) {
  std::vector<double> out;
  std::istringstream words(text);
  for (std::string one; std::getline(words, one, ',');) {
    char* end = nullptr;
    const double value = std::strtod(one.c_str(), &end);
    if (end == one.c_str() || *end != '\0' || !(value > 0) || value > 1e6)
      return Error{Refusal::FlagValue, fmt::format("{}: want numbers with commas between", flag)};
    out.push_back(value);
  }
  return out;
}

Result<Plan> plan_of(const Flags& flags) {
  Plan out;
  ROOST_TRY(out.concurrency, numbers_of("--concurrency", flags.concurrency));
  ROOST_TRY(out.rates, numbers_of("--rates", flags.rates));
  std::istringstream kinds(flags.prompts);
  for (std::string one; std::getline(kinds, one, ',');) {
    const bool is_known = one == "prose" || one == "code" || one == "structured" || one == "list" ||
                          (one == "real" && !flags.prompt_file.empty());
    if (!is_known)
      return Error{Refusal::FlagValue,
                   fmt::format("--prompts: have {}, want prose, code, structured, list, or real "
                               "with --prompt-file",
                               one)};
    out.prompts.kinds.push_back(one);
  }
  if (out.prompts.kinds.empty()) return Error{Refusal::FlagValue, "--prompts: want one at least"};
  if (!flags.prompt_file.empty()) {
    ROOST_TRY(out.prompts.real_text, read_file(flags.prompt_file, kTextBytesMax));
  }
  for (const int64_t n : {flags.requests, flags.runs, flags.prompt_tokens, flags.reply_tokens})
    if (n < 1 || n > 1'000'000)
      return Error{Refusal::FlagValue,
                   "--requests, --runs, --prompt-tokens, --reply-tokens: want 1 to 1000000"};
  out.prompts.prompt_tokens = flags.prompt_tokens;
  out.prompts.reply_tokens = flags.reply_tokens;
  out.goals = {flags.goal_ttft, flags.goal_decode};
  out.n_requests = flags.requests;
  out.n_runs = flags.runs;
  out.n_warm_up = flags.warm_up;
  out.n_turns = flags.agent_turns;
  out.trace_scale = flags.agent_scale;
  out.seed = flags.bench_seed;
  out.has_warm = flags.warm;
  return out;
}

std::vector<json::Value> bodies_of(BenchPrompts& prompts, int64_t n, bool is_warm) {
  std::vector<json::Value> out;
  for (int64_t i = 0; i < n; ++i) out.push_back(is_warm ? prompts.warm() : prompts.cold());
  return out;
}

// The same prompts alone and plain, alone and drafted, and all at once: one hash for each.
Result<json::Value> agreement_of(const BenchTarget& target, const Plan& plan) {
  BenchPrompts prompts(plan.prompts, plan.seed ^ 0xA9EEu);
  std::vector<json::Value> drafted = bodies_of(prompts, kAgreementPrompts, false);
  std::vector<json::Value> plain = drafted;
  for (json::Value& body : plain) {
    body.set("draft", json::Value::boolean(false));
    body.set("cache_prompt", json::Value::boolean(false));
  }
  const std::vector<BenchRecord> one = run_closed(target, plain, 1);
  const std::vector<BenchRecord> two = run_closed(target, drafted, 1);
  const std::vector<BenchRecord> all = run_closed(target, drafted, kAgreementPrompts);
  bool is_drafted_plain = true, is_batch_alone = true;
  for (size_t i = 0; i < one.size(); ++i) {
    if (!one[i].is_ok()) return Error{Refusal::FlagValue, "a reply failed: " + one[i].refusal};
    is_drafted_plain = is_drafted_plain && one[i].token_sha256 == two[i].token_sha256;
    is_batch_alone = is_batch_alone && two[i].token_sha256 == all[i].token_sha256;
  }
  json::Value out = json::Value::object();
  out.set("drafted_is_plain", json::Value::boolean(is_drafted_plain));
  out.set("batch_is_alone", json::Value::boolean(is_batch_alone));
  return out;
}

// Kept tokens as usage counts them against those of the text read again: they differ where a reply
// is not what its own text would be cut into.
int64_t n_counted_alike(const BenchTarget& target, const std::vector<BenchRecord>& records) {
  int64_t out = 0;
  for (const BenchRecord& r : records) {
    json::Value body = json::Value::object();
    body.set("prompt", json::Value::string(r.text));
    const Result<json::Value> counted = ask_json(target, "POST", "/tokenize", json::write(body));
    const json::Value* n = counted ? counted->find("count") : nullptr;
    out += n != nullptr && n->as_int64() == r.n_reply;
  }
  return out;
}

double metric_of(const BenchTarget& target, std::string_view name) {
  const Result<std::string> text = ask(target, "GET", "/metrics");
  if (!text) return 0;
  const size_t at = text->find(fmt::format("\n{}{{", name));
  if (at == std::string::npos) return 0;
  const size_t space = text->find(' ', at + 1);
  return space == std::string::npos ? 0 : std::strtod(text->c_str() + space, nullptr);
}

json::Value agent_value(const AgentTrace& trace, const BenchGoals& goals) {
  json::Value out = json::Value::object();
  out.set("total_s", json::Value::real(trace.total_s));
  out.set("recomputed_tokens", json::Value::integer(trace.n_recomputed));
  out.set("largest_silence_s", json::Value::real(trace.largest_silence_s));
  out.set("turns", figures_of(trace.turns, goals));
  out.set("beside", figures_of(trace.beside, goals));
  return out;
}

// One pass over everything on one server.
Result<json::Value> run_once(const Subject& subject, const Plan& plan, uint64_t seed) {
  const BenchTarget& target = subject.target();
  BenchPrompts prompts(plan.prompts, seed);
  for (const BenchRecord& r : run_closed(target, bodies_of(prompts, plan.n_warm_up, false), 1))
    if (!r.is_ok()) return Error{Refusal::FlagValue, "the warm-up failed: " + r.refusal};
  json::Value out = json::Value::object();
  const double emitted_before = metric_of(target, "roost_emitted_tokens_total");
  const int64_t swap_before = subject.status_bytes("VmSwap");
  int64_t n_reply = 0, n_alike = 0, n_checked = 0;
  const auto note = [&](const std::string& name, const std::vector<BenchRecord>& records) {
    for (const BenchRecord& r : records) n_reply += r.n_reply;
    n_alike += n_counted_alike(target, records);
    n_checked += static_cast<int64_t>(records.size());
    out.set(name, figures_of(records, plan.goals));
  };
  for (const double c : plan.concurrency) {
    const auto n_at_once = static_cast<int64_t>(c);
    const int64_t n = std::max(plan.n_requests, 2 * n_at_once);
    note(fmt::format("cold, {} at once", n_at_once),
         run_closed(target, bodies_of(prompts, n, false), n_at_once));
    if (!plan.has_warm) continue;
    note(fmt::format("warm, {} at once", n_at_once),
         run_closed(target, bodies_of(prompts, n, true), n_at_once));
  }
  for (const double rate : plan.rates)
    note(fmt::format("cold, {} a second", rate),
         run_poisson(target, bodies_of(prompts, plan.n_requests, false), rate, seed));
  if (plan.n_turns > 0) {
    const AgentTrace trace =
        run_agent(target, prompts, plan.trace_scale, plan.n_turns, plan.prompts.reply_tokens, seed);
    for (const auto* list : {&trace.turns, &trace.beside})
      for (const BenchRecord& r : *list) n_reply += r.n_reply;
    out.set("agent", agent_value(trace, plan.goals));
  }
  const double emitted = metric_of(target, "roost_emitted_tokens_total") - emitted_before;
  json::Value counts = json::Value::object();
  counts.set("emitted_less_usage", json::Value::real(emitted - static_cast<double>(n_reply)));
  counts.set("tokenized_alike", json::Value::integer(n_alike));
  counts.set("tokenized", json::Value::integer(n_checked));
  counts.set("peak_bytes", json::Value::integer(subject.status_bytes("VmHWM")));
  counts.set("swap_change_bytes",
             json::Value::integer(subject.status_bytes("VmSwap") - swap_before));
  out.set("checks", std::move(counts));
  return out;
}

// The highest rate at which so large a share of the requests met the goals.
json::Value capacity_of(const json::Value& medians, const Plan& plan, double share) {
  double best = 0;
  for (const double rate : plan.rates) {
    const json::Value* figures = medians.find(fmt::format("cold, {} a second", rate));
    const std::optional<double> have =
        figures == nullptr ? std::nullopt : figure_at(*figures, "GOODPUT.share.median");
    if (have && *have >= share) best = std::max(best, rate);
  }
  return best > 0 ? json::Value::real(best) : json::Value();
}

void print_table(const json::Value& medians) {
  std::printf("%-22s %10s %10s %10s %10s %10s %8s %7s\n", "medians", "TTFT p50", "TPOT mean",
              "ITL p90", "OUT", "PER USER", "GOODPUT", "REUSE");
  for (const auto& [name, figures] : medians.members()) {
    if (figures.find("TTFT") == nullptr) continue;
    const auto at = [&](const char* path) {
      return figure_at(figures, std::string(path) + ".median").value_or(0);
    };
    std::printf("%-22s %7.1f ms %7.2f ms %7.2f ms %6.1f t/s %6.1f t/s %6.0f %% %5.0f %%\n",
                name.c_str(), at("TTFT.p50"), at("TPOT.mean"), at("ITL.p90"), at("OUT"),
                at("PER USER"), 100 * at("GOODPUT.share"), 100 * at("REUSE.share"));
  }
  if (const json::Value* agent = medians.find("agent")) {
    const auto at = [&](const char* path) { return figure_at(*agent, path).value_or(0); };
    std::printf("agent                  %.1f s, %.0f tokens computed, largest silence %.2f s\n",
                at("total_s.median"), at("recomputed_tokens.median"),
                at("largest_silence_s.median"));
  }
}

std::string first_line(const char* path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

// What a reader needs to judge the figures.
Result<json::Value> facts_of(const Subject& subject, const std::string& flags) {
  ROOST_TRY(const json::Value version, ask_json(subject.target(), "GET", "/version"));
  ROOST_TRY(const json::Value props, ask_json(subject.target(), "GET", "/props"));
  json::Value out = json::Value::object();
  out.set("server", version);
  for (const char* key : {"model", "drafter", "context_length", "streams", "memory"})
    if (const json::Value* value = props.find(key)) out.set(key, *value);
  out.set("flags", json::Value::string(flags));
  out.set("restarted", json::Value::boolean(subject.is_own()));
  out.set("os", json::Value::string(first_line("/proc/version")));
  out.set("driver", json::Value::string(first_line("/proc/driver/nvidia/version")));
  return out;
}

struct Side {
  std::string name, flags;
  std::vector<json::Value> runs;
  json::Value facts, agreement;
};

Result<json::Value> run_all(const CommandLine& line, const Plan& plan, std::string key) {
  const Flags& flags = line.flags;
  std::vector<Side> sides = {{"A", flags.server_flags, {}, {}, {}}};
  if (!flags.against.empty()) sides.push_back({"B", flags.against, {}, {}, {}});
  // A B B A, so that a drift of the machine meets both alike.
  const auto n_turns = static_cast<int64_t>(sides.size()) * plan.n_runs;
  for (int64_t turn = 0; turn < n_turns; ++turn) {
    Side& side = sides[sides.size() == 1 ? 0 : static_cast<size_t>(((turn + 1) / 2) % 2)];
    ROOST_TRY(const std::unique_ptr<Subject> subject, Subject::start(line.model, side.flags, key));
    if (side.runs.empty()) {
      ROOST_TRY(side.facts, facts_of(*subject, side.flags));
      ROOST_TRY(side.agreement, agreement_of(subject->target(), plan));
    }
    const auto run_idx = static_cast<uint64_t>(side.runs.size());
    ROOST_TRY(json::Value run, run_once(*subject, plan, plan.seed + run_idx));
    side.runs.push_back(std::move(run));
    std::fprintf(stderr, "run %lld of %lld (%s)\n", static_cast<long long>(turn + 1),
                 static_cast<long long>(n_turns), side.name.c_str());
  }
  json::Value out = json::Value::object();
  json::Value settings = json::Value::object();
  settings.set("warm_up_requests_excluded", json::Value::integer(plan.n_warm_up));
  settings.set("goal_ttft_ms", json::Value::real(plan.goals.ttft_ms));
  settings.set("goal_decode_per_s", json::Value::real(plan.goals.decode_per_s));
  settings.set("seed", json::Value::unsigned_integer(plan.seed));
  out.set("settings", std::move(settings));
  for (Side& side : sides) {
    const json::Value medians = medians_of(side.runs);
    std::printf("%s  %s\n", side.name.c_str(), side.flags.c_str());
    print_table(medians);
    json::Value told = json::Value::object();
    told.set("about", std::move(side.facts));
    told.set("correct", std::move(side.agreement));
    told.set("medians", medians);
    json::Value capacity = json::Value::object();
    capacity.set("share_90", capacity_of(medians, plan, 0.90));
    capacity.set("share_99", capacity_of(medians, plan, 0.99));
    told.set("CAPACITY", std::move(capacity));
    told.set("runs", json::Value::array(std::move(side.runs)));
    out.set(side.name, std::move(told));
  }
  return out;
}

}  // namespace

int run_bench_serve(const CommandLine& line) {
  const Result<Plan> plan = plan_of(line.flags);
  if (!plan) return complain(plan.error());
  const char* key = std::getenv("ROOST_API_KEY");
  const Result<json::Value> report = run_all(line, *plan, key == nullptr ? "" : key);
  if (!report) return complain(report.error());
  if (line.flags.output.empty()) return 0;
  std::ofstream file(line.flags.output);
  file << json::write(*report) << '\n';
  file.close();
  if (!file) return complain(Error{Refusal::FlagValue, "--output: it cannot be written"});
  return 0;
}

}  // namespace roost
