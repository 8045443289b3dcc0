// What drafts gain: the same replies with and without them, in turns, so that what else runs on the
// machine slows both. CSV on stdout.
//   draft_speed [KIND …]                    the bundled model and drafter, and copies alone, by
//                                           kind of prompt
//   draft_speed --simulate FOLDER [HOLD …]  a model of random weights; drafts are the reply itself,
//                                           each right with that probability
//
// A prompt's time is the shortest of its repetitions from the first token to the last, of each
// engine. `predicted` is what the cost table says of the accept length that was reached: tokens per
// round times a plain step, over the cost of a round. The plain step is that of plain decoding at
// the same time: an engine that drafts may not have run one for long.
#include <cstdio>
#include <map>
#include <set>

#include "device/cpu/machine_limits.h"
#include "tests/laws/draft_run.h"

namespace roost::testing {
namespace {

constexpr int kRepetitions = 5, kPromptsOfAKind = 6;
constexpr int64_t kNewTokensMax = 160;

// Sums over replies.
struct Times {
  int64_t n_tokens = 0;
  double ms = 0;
  DraftFigures figures;

  double us_per_token() const { return 1e3 * ms / static_cast<double>(n_tokens); }
};

double decode_ms(const Reply& reply) {
  return static_cast<double>(reply.end.finished_ns - reply.end.first_token_ns) * 1e-6;
}

double predicted_gain(const DraftFigures& f, double plain_ms, const DraftCosts& costs) {
  constexpr int64_t kContext = 100;
  const auto n_tokens = static_cast<double>(f.n_tokens);
  const double of_plain = static_cast<double>(f.n_plain_steps) * plain_ms;
  if (f.n_rounds == 0) return n_tokens * plain_ms / of_plain;
  const int64_t rows = std::max<int64_t>((f.n_rows + f.n_rounds / 2) / f.n_rounds, 2);
  double round = costs.step.estimate(rows, kContext);
  if (f.n_copied < f.n_drafted) round += costs.draft.estimate(rows, kContext);
  return n_tokens * plain_ms / (of_plain + static_cast<double>(f.n_rounds) * round);
}

// rows_of_rounds: verified in all rounds, anchors included.
void print_row(const char* kind, const char* drafts, const Times& plain, const Times& drafted,
               const DraftCosts& costs) {
  const DraftFigures& f = drafted.figures;
  const double predicted = predicted_gain(f, 1e-3 * plain.us_per_token(), costs);
  std::printf("%s,%s,%ld,%.1f,%.1f,%.3f,%.3f,%.2f,%ld,%ld,%ld\n", kind, drafts,
              static_cast<long>(plain.n_tokens), plain.us_per_token(), drafted.us_per_token(),
              plain.us_per_token() / drafted.us_per_token(), predicted, f.accept_length(),
              static_cast<long>(f.n_rounds), static_cast<long>(f.n_rows),
              static_cast<long>(f.n_plain_steps));
  std::fflush(stdout);
}

void print_table(const DraftCosts& costs) {
  std::printf("\nrows,step_ms,draft_ms\n");
  for (int64_t rows = 1; rows <= 16; ++rows)
    std::printf("%ld,%.3f,%.3f\n", static_cast<long>(rows), costs.step.estimate(rows, 100),
                rows == 1 ? 0 : costs.draft.estimate(rows, 100));
}

// Of a step whose rows are all verified: 2 for each weight that a row meets, the head's included,
// and 7 for each value of a recurrent state: decayed, read twice and written.
double flop_of_row(const ModelWeights& weights) {
  const ModelConfig& c = weights.config;
  const double head = 2.0 * static_cast<double>(c.hidden * c.vocabulary);
  const double state = 7.0 * static_cast<double>(c.n_value_heads * c.key_dim * c.value_dim);
  return active_bytes(weights).flop_layers_per_row + head +
         static_cast<double>(c.n_delta_layers()) * state;
}

void print_verify(const ModelWeights& weights, const DraftCosts& costs) {
  if (hardware() != nullptr) return;  // a card's limit is another one
  ThreadPool pool(2);
  const double ms = 16e3 * flop_of_row(weights) / measure_fma_peak(pool);
  std::printf("\nverify_rows,step_ms,ms_at_fma_peak,times\n16,%.3f,%.3f,%.2f\n",
              costs.step.estimate(16, 100), ms, costs.step.estimate(16, 100) / ms);
}

// What the engine does for a round beside running its rows and its block: copies are looked for,
// depths planned, costs and acceptance noted.
void print_choosing(DraftCosts costs) {
  constexpr int kRounds = 2000;
  Rounds rounds(1, 16, 15, system_clock());
  const double plain_us = 1e3 * costs.step.estimate(1, 100);
  rounds.costs() = costs;
  StreamDrafts state;
  CopyMatch matches(4 * kRounds);
  Tokens tokens(200);
  for (size_t i = 0; i < tokens.size(); ++i) tokens[i] = static_cast<int32_t>(i * i % 3000);
  const int64_t begin = system_clock().now_ns();
  for (int round = 0; round < kRounds; ++round) {
    RoundStream streams[] = {{&state, &matches, tokens, 15, nullptr, {}}};
    rounds.plan(streams, {.n_rows = 1, .context = 200}, 15, [](auto, std::span<int32_t> drafts) {
      std::fill(drafts.begin(), drafts.end(), 1);
    });
    rounds.costs().step.record(1 + state.n_drafts, 200, 1e-3 * plain_us);
    Rounds::note(state, state.n_drafts / 2, false);
    tokens.push_back(round % 3000);
  }
  const double us = static_cast<double>(system_clock().now_ns() - begin) * 1e-3 / kRounds;
  std::printf("\nchoosing_us,plain_step_us,share\n%.2f,%.1f,%.4f\n", us, plain_us, us / plain_us);
}

// Draws the replies of a prompt by turns, kRepetitions times; adds the shortest of each to its sum.
void race(const std::vector<CoreRun*>& runs, const Ask& ask, const std::vector<Times*>& sums) {
  std::vector<double> best(runs.size(), 1e18);
  std::vector<Reply> replies(runs.size());
  for (int repetition = 0; repetition < kRepetitions; ++repetition) {
    for (size_t i = 0; i < runs.size(); ++i) {
      const size_t turn = (i + static_cast<size_t>(repetition)) % runs.size();
      Reply reply = runs[turn]->reply(ask);
      const double ms = decode_ms(reply);
      if (ms >= best[turn]) continue;
      best[turn] = ms;
      replies[turn] = std::move(reply);
    }
  }
  for (size_t i = 0; i < runs.size(); ++i) {
    ROOST_CHECK(replies[i].tokens == replies[0].tokens);
    if (replies[i].tokens.size() < 2) return;
    sums[i]->n_tokens += static_cast<int64_t>(replies[i].tokens.size()) - 1;
    sums[i]->ms += best[i];
    sums[i]->figures.add(replies[i].end.drafts);
  }
}

constexpr const char* kHeader =
    "kind,drafts,tokens,plain_us_per_token,drafted_us_per_token,ratio,predicted,accept_length,"
    "rounds,rows_of_rounds,plain_steps\n";

void bundled(const std::set<std::string>& kinds) {
  CoreRun plain(false, false, 1, target(), &system_clock());
  CoreRun drafted(true, true, 1, target(), &system_clock());
  CoreRun copying(true, false, 1, target(), &system_clock());
  std::map<std::string, std::vector<Tokens>> prompts_of;
  for (const Prompt& prompt : prompts()) prompts_of[prompt.kind].push_back(prompt.ids);
  std::printf("%s", kHeader);
  for (const auto& [kind, all] : prompts_of) {
    if (!kinds.empty() && !kinds.contains(kind)) continue;
    Times by_plain, by_drafter, by_copies;
    const size_t every = std::max<size_t>(all.size() / kPromptsOfAKind, 1) | 1;
    for (size_t i = 0; i < all.size(); i += every)
      race({&plain, &drafted, &copying}, {all[i], {}, kNewTokensMax},
           {&by_plain, &by_drafter, &by_copies});
    print_row(kind.c_str(), "drafter", by_plain, by_drafter, drafted.core().draft_costs());
    print_row(kind.c_str(), "copies", by_plain, by_copies, copying.core().draft_costs());
  }
  print_table(drafted.core().draft_costs());
  print_verify(*target(), drafted.core().draft_costs());
  print_choosing(drafted.core().draft_costs());
}

// Drafts are the tokens of the plain reply, each wrong with a probability of 1 - hold.
void simulated(const std::string& folder, std::vector<double> holds) {
  if (holds.empty()) holds = {0.95, 0.8, 0.5, 0.0};
  const auto weights = placed(load_model(folder));
  CoreRun plain(false, false, 1, weights, &system_clock());
  CoreRun drafted(true, false, 1, weights, &system_clock());
  std::printf("%s", kHeader);
  for (const double hold : holds) {
    Times by_plain, by_drafts;
    for (int32_t number = 0; number < 2; ++number) {
      Ask ask{{}, {}, 48};
      for (int32_t t = 0; t < 24; ++t) ask.prompt.push_back(1000 + 37 * t + number);
      ask.change = [](EngineRequest& r) { r.ignore_end_tokens = true; };
      Tokens all = ask.prompt;
      const Tokens reply = plain.reply(ask).tokens;
      all.insert(all.end(), reply.begin(), reply.end());
      drafted.runner().set_own_drafts(
          [&all, hold](const DraftBlock& block, std::span<int32_t> tokens) {
            for (size_t i = 0; i < tokens.size(); ++i) {
              const size_t at = static_cast<size_t>(block.position) + 1 + i;
              const double dice =
                  static_cast<double>((at * 0x9E3779B97F4A7C15u) >> 11) * 0x1p-53;  // of the place
              tokens[i] = at < all.size() ? all[at] + (dice >= hold) : 0;
            }
          });
      race({&plain, &drafted}, ask, {&by_plain, &by_drafts});
    }
    char kind[32];
    std::snprintf(kind, sizeof kind, "hold %.2f", hold);
    print_row(kind, "simulated", by_plain, by_drafts, drafted.core().draft_costs());
  }
  print_table(drafted.core().draft_costs());
  print_verify(*weights, drafted.core().draft_costs());
  print_choosing(drafted.core().draft_costs());
}

}  // namespace
}  // namespace roost::testing

int main(int n_arguments, char** arguments) {
  const std::vector<std::string> words(arguments + 1, arguments + n_arguments);
  if (words.size() >= 2 && words[0] == "--simulate") {
    std::vector<double> holds;
    for (size_t i = 2; i < words.size(); ++i) holds.push_back(std::stod(words[i]));
    roost::testing::simulated(words[1], holds);
  } else {
    roost::testing::bundled({words.begin(), words.end()});
  }
  return 0;
}
