#include "engine/engine.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <condition_variable>
#include <filesystem>
#include <future>
#include <map>
#include <mutex>
#include <random>

#include "base/file.h"
#include "base/json.h"
#include "tests/count_allocations.h"
#include "tests/model_run.h"

namespace roost {
namespace {

std::shared_ptr<const ModelWeights> fledgling() {
  static const auto weights = testing::load_model(ROOST_SOURCE_DIR "/models/fledgling");
  return weights;
}

struct Answer {
  std::vector<int32_t> tokens;
  EngineEvent end;
};

// Collects a request's events; wait() returns when it has ended.
class Listener {
 public:
  EventSink sink() {
    return [this](const EngineEvent& event) {
      const std::lock_guard lock(mutex_);
      ++n_events_;
      if (event.kind == EngineEvent::Kind::kStarted) has_started_ = true;
      answer_.tokens.insert(answer_.tokens.end(), event.tokens.begin(), event.tokens.end());
      if (event.kind == EngineEvent::Kind::kFinished) {
        answer_.end = event;
        is_done_ = true;
      }
      changed_.notify_all();
    };
  }
  Answer wait() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return is_done_; });
    return answer_;
  }
  void wait_for_tokens(size_t n) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return is_done_ || answer_.tokens.size() >= n; });
  }
  bool has_started() const { return has_started_; }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  Answer answer_;
  int n_events_ = 0;
  bool is_done_ = false, has_started_ = false;
};

struct GoldenAnswer {
  std::vector<int32_t> prompt, ids;
  bool has_ended;
};

std::map<std::string, GoldenAnswer> golden_answers() {
  const auto text =
      read_file(ROOST_SOURCE_DIR "/tests/golden/golden.json", limits::kConfigBytesMax).value();
  const json::Value index = json::parse(text).value();
  std::map<std::string, GoldenAnswer> answers;
  for (const json::Value& c : index.find("continuations")->items()) {
    GoldenAnswer& a = answers[c.find("name")->as_string()];
    for (const json::Value& id : c.find("prompt_ids")->items())
      a.prompt.push_back(static_cast<int32_t>(*id.as_int64()));
    for (const json::Value& id : c.find("ids")->items())
      a.ids.push_back(static_cast<int32_t>(*id.as_int64()));
    a.has_ended = c.find("ended")->as_bool();
    if (a.has_ended) a.ids.pop_back();  // the end token is no kept token
  }
  return answers;
}

EngineOptions small() {
  EngineOptions options;
  options.context_max = 1024;
  options.streams_max = 8;
  options.chunk_rows_max = 128;
  options.n_tokens = 3071;
  return options;
}

EngineOptions small_with_drafter() {
  static const auto drafter = std::make_shared<const DrafterWeights>(
      load_drafter(ROOST_SOURCE_DIR "/models/fledgling/drafter", *fledgling()).value());
  EngineOptions options = small();
  options.drafter = drafter;
  return options;
}

std::unique_ptr<Engine> make_engine(const EngineOptions& options = small()) {
  return Engine::create(fledgling(), options, system_clock()).value();
}

EngineRequest request(std::vector<int32_t> prompt, int64_t new_tokens_max, double temperature = 0,
                      uint64_t seed = 0) {
  EngineRequest r;
  r.prompt = std::move(prompt);
  r.new_tokens_max = new_tokens_max;
  r.sampling = {.temperature = temperature, .top_k = 20, .top_p = 0.95, .seed = seed};
  return r;
}

Answer ask(Engine& engine, const EngineRequest& r) {
  Listener listener;
  const auto id = engine.submit(r, listener.sink());
  EXPECT_TRUE(id) << to_string(id.error());
  return listener.wait();
}

TEST(Engine, answers_as_the_reference_does) {
  const auto engine = make_engine();
  const auto answers = golden_answers();
  for (const char* name : {"count", "think", "capital", "json"}) {
    const GoldenAnswer& want = answers.at(name);
    const Answer have = ask(*engine, request(want.prompt, 160));
    EXPECT_EQ(have.tokens, want.ids) << name;
    EXPECT_EQ(have.end.finish, want.has_ended ? Finish::kEndToken : Finish::kLength) << name;
    EXPECT_EQ(have.end.n_generated, static_cast<int64_t>(have.tokens.size()));
    EXPECT_EQ(have.end.n_prompt, static_cast<int64_t>(want.prompt.size()));
  }
}

TEST(Engine, eight_streams_together_equal_each_alone) {
  const auto engine = make_engine();
  std::vector<EngineRequest> requests;
  for (const auto& [name, answer] : golden_answers()) {
    if (!name.starts_with("picture"))
      requests.push_back(request(answer.prompt, 60, 0.8, requests.size()));
  }
  std::vector<Answer> alone;
  for (const EngineRequest& r : requests) alone.push_back(ask(*engine, r));
  std::vector<Listener> together(requests.size());
  for (size_t i = 0; i < requests.size(); ++i)
    ASSERT_TRUE(engine->submit(requests[i], together[i].sink()));
  for (size_t i = 0; i < requests.size(); ++i)
    EXPECT_EQ(together[i].wait().tokens, alone[i].tokens) << i;
}

TEST(Engine, a_seed_repeats_a_reply_and_another_changes_it) {
  const auto engine = make_engine();
  const std::vector<int32_t> prompt = golden_answers().at("story").prompt;
  const Answer first = ask(*engine, request(prompt, 40, 1.5, 1));
  EXPECT_EQ(ask(*engine, request(prompt, 40, 1.5, 1)).tokens, first.tokens);
  EXPECT_NE(ask(*engine, request(prompt, 40, 1.5, 2)).tokens, first.tokens);
}

TEST(Engine, ends_by_length_by_context_and_by_stop_token) {
  EngineOptions options = small();
  options.context_max = 128;
  const auto engine = make_engine(options);
  const GoldenAnswer count = golden_answers().at("count");
  const Answer by_length = ask(*engine, request(count.prompt, 5));
  EXPECT_EQ(by_length.end.finish, Finish::kLength);
  EXPECT_EQ(by_length.tokens.size(), 5u);

  EngineRequest endless = request(count.prompt, 100'000);
  endless.ignore_end_tokens = true;
  const Answer by_context = ask(*engine, endless);
  EXPECT_EQ(by_context.end.finish, Finish::kContext);
  EXPECT_EQ(by_context.tokens.size(), 128 - count.prompt.size());

  EngineRequest stopped = request(count.prompt, 100);
  stopped.stop_tokens = {count.ids[7]};
  const Answer by_token = ask(*engine, stopped);
  EXPECT_EQ(by_token.end.finish, Finish::kEndToken);
  EXPECT_EQ(by_token.end.end_token, count.ids[7]);
  const auto first = std::find(count.ids.begin(), count.ids.end(), count.ids[7]);
  EXPECT_EQ(by_token.tokens, std::vector<int32_t>(count.ids.begin(), first));
}

TEST(Engine, refuses_what_cannot_run) {
  EngineOptions options = small();
  options.context_max = 64;
  const auto engine = make_engine(options);
  Listener listener;
  EXPECT_EQ(engine->submit(request({}, 5), listener.sink()).error().refusal, Refusal::EmptyPrompt);
  const auto long_one = engine->submit(request(std::vector<int32_t>(64, 1), 5), listener.sink());
  EXPECT_EQ(long_one.error().refusal, Refusal::RequestTooLong);
  EXPECT_EQ(long_one.error().detail,
            "64 tokens > 63 maximum; this model's maximum context length is 64 tokens");
  EXPECT_EQ(engine->submit(request({1'000'000}, 5), listener.sink()).error().refusal,
            Refusal::FieldRange);
  EngineRequest longest = request(std::vector<int32_t>(63, 1), 5);
  longest.ignore_end_tokens = true;
  EXPECT_EQ(ask(*engine, longest).tokens.size(), 1u);
  engine->drain();
  EXPECT_EQ(engine->submit(request({1}, 5), listener.sink()).error().refusal,
            Refusal::ServerDraining);
}

TEST(Engine, a_full_queue_refuses_and_the_next_request_is_fine) {
  EngineOptions options = small();
  options.streams_max = 1;
  options.queue_max = 2;
  const auto engine = make_engine(options);
  const std::vector<int32_t> prompt = golden_answers().at("count").prompt;
  EngineRequest endless = request(prompt, 100'000);
  endless.ignore_end_tokens = true;
  Listener running, first, second, refused;
  const auto id = engine->submit(endless, running.sink());
  running.wait_for_tokens(1);
  ASSERT_TRUE(engine->submit(request(prompt, 3), first.sink()));
  ASSERT_TRUE(engine->submit(request(prompt, 3), second.sink()));
  EXPECT_EQ(engine->submit(request(prompt, 3), refused.sink()).error().refusal, Refusal::QueueFull);
  engine->cancel(*id);
  EXPECT_EQ(running.wait().end.finish, Finish::kCancelled);
  EXPECT_EQ(first.wait().tokens.size(), 3u);
  EXPECT_EQ(second.wait().tokens.size(), 3u);
  EXPECT_EQ(ask(*engine, request(prompt, 3)).tokens.size(), 3u);
}

// When the last ending has been published.
Engine::Counts idle_counts(const Engine& engine) {
  Engine::Counts counts = engine.counts();
  while (counts.n_running > 0) counts = engine.counts();
  return counts;
}

TEST(Engine, memory_that_runs_out_delays_the_newest_and_changes_no_token) {
  const std::vector<int32_t> prompt = golden_answers().at("story").prompt;
  const auto endless = [&](uint64_t seed) {
    EngineRequest r = request(prompt, 400, 0.8, seed);
    r.ignore_end_tokens = true;
    return r;
  };
  std::vector<Answer> alone;
  {
    const auto engine = make_engine();
    for (uint64_t s = 0; s < 3; ++s) alone.push_back(ask(*engine, endless(s)));
  }
  // Pages for one sequence of full length and a little more: three cannot run to their ends
  // together.
  for (const bool has_drafter : {false, true}) {
    EngineOptions options = has_drafter ? small_with_drafter() : small();
    options.context_max = 512;
    options.streams_max = 3;
    options.reserved_new_tokens = 16;
    size_t page_bytes = ModelState::bytes_per_page(fledgling()->config, DType::kBF16);
    if (has_drafter)
      page_bytes += DrafterState::bytes_per_page(options.drafter->config, DType::kBF16);
    options.kv_bytes = 10 * page_bytes;
    const auto engine = make_engine(options);
    std::vector<Listener> together(3);
    for (uint64_t s = 0; s < 3; ++s) {
      EngineRequest r = endless(s);
      r.uses_cache = has_drafter;  // what waits keeps its state with and without the cache
      ASSERT_TRUE(engine->submit(r, together[s].sink()));
    }
    int64_t n_rounds = 0;
    for (size_t s = 0; s < 3; ++s) {
      const Answer have = together[s].wait();
      EXPECT_EQ(have.tokens, alone[s].tokens) << s;
      n_rounds += have.end.drafts.n_rounds;
    }
    const Engine::Counts counts = idle_counts(*engine);
    EXPECT_EQ(counts.n_pages, 10);
    EXPECT_GT(counts.n_suspended, 0);
    EXPECT_GT(counts.n_saved_snapshots, 0);
    EXPECT_EQ(counts.n_kept_snapshots > 0, has_drafter);
    if (has_drafter) {
      EXPECT_GT(n_rounds, 0);
    }
  }
}

TEST(Engine, pages_and_slots_come_back_after_endings_of_every_kind) {
  const auto engine = make_engine();
  const auto answers = golden_answers();
  std::mt19937 random(3);
  std::vector<std::unique_ptr<Listener>> listeners;
  std::vector<Engine::RequestId> ids;
  for (int i = 0; i < 60; ++i) {
    auto it = answers.begin();
    std::advance(it, static_cast<int>(random() % answers.size()));
    EngineRequest r = request(it->second.prompt, 1 + random() % 30, 1.0, random());
    listeners.push_back(std::make_unique<Listener>());
    auto id = engine->submit(r, listeners.back()->sink());
    if (!id) {
      listeners.pop_back();
      continue;
    }
    ids.push_back(*id);
    if (random() % 3 == 0) engine->cancel(ids[random() % ids.size()]);
  }
  for (auto& listener : listeners) listener->wait();
  ask(*engine, request(answers.at("count").prompt, 2));
  const Engine::Counts counts = idle_counts(*engine);
  EXPECT_EQ(counts.n_free_pages, counts.n_pages);
  EXPECT_EQ(counts.n_free_slots, counts.n_slots);
  EXPECT_EQ(counts.n_waiting, 0);
}

// Every place that a later prompt can resume from, with a state kept there, and one page that is
// used in part.
TEST(Engine, a_resumed_prompt_equals_a_fresh_one_wherever_it_resumes) {
  EngineOptions uncached = small();
  uncached.has_cache = false;
  const auto cold = make_engine(uncached);
  std::vector<int32_t> prompt = golden_answers().at("story").prompt;
  while (prompt.size() < 150) prompt.push_back(static_cast<int32_t>(prompt.size() * 37 % 3000));
  const auto last = static_cast<int64_t>(prompt.size()) - 1;
  EngineOptions options = small();
  options.chunk_rows_max = 48;  // chunks end at places, or store the state within
  for (const int64_t place : {int64_t{1}, int64_t{63}, int64_t{64}, int64_t{65}, int64_t{127},
                              last - 20, last - 15, last - 3, last}) {
    const auto engine = make_engine(options);
    EngineRequest first = request(prompt, 1);
    first.places = {place};
    ask(*engine, first);
    // Another end than the first one's, so that nothing behind the place is shared.
    EngineRequest second = request(prompt, 12, 1.1, 5);
    if (place < last) second.prompt[static_cast<size_t>(place)] = 7;
    const Answer want = ask(*cold, second), have = ask(*engine, second);
    EXPECT_EQ(have.tokens, want.tokens) << place;
    EXPECT_EQ(have.end.n_cached, place);
    EXPECT_EQ(want.end.n_cached, 0);
  }
}

TEST(Engine, the_next_turn_goes_on_behind_the_reply) {
  const auto engine = make_engine();
  const GoldenAnswer count = golden_answers().at("count");
  const Answer first = ask(*engine, request(count.prompt, 160));
  ASSERT_EQ(first.tokens, count.ids);
  std::vector<int32_t> next = count.prompt;
  next.insert(next.end(), count.ids.begin(), count.ids.end());
  const auto n_known = static_cast<int64_t>(next.size());
  next.insert(next.end(), {5, 6, 7, 8});
  EXPECT_EQ(ask(*engine, request(next, 3)).end.n_cached, n_known);
  EngineRequest private_one = request(next, 3);
  private_one.uses_cache = false;
  EXPECT_EQ(ask(*engine, private_one).end.n_cached, 0);
  EngineRequest salted = request(next, 3);
  salted.cache_salt = {1, 1};
  EXPECT_EQ(ask(*engine, salted).end.n_cached, 0);
  EXPECT_EQ(ask(*engine, salted).end.n_cached, n_known + 3);
}

TEST(Engine, choices_without_the_cache_compute_their_prompt_once_and_leave_nothing) {
  const auto engine = make_engine();
  std::vector<int32_t> prompt(500);
  for (size_t i = 0; i < prompt.size(); ++i) prompt[i] = static_cast<int32_t>(i * 7 % 3000);
  const Answer known = ask(*engine, request(prompt, 6));
  const Engine::Counts before = idle_counts(*engine);
  EngineRequest choice = request(prompt, 6);
  choice.uses_cache = false;
  choice.choices = 77;
  std::vector<Listener> listeners(3);
  for (Listener& listener : listeners) ASSERT_TRUE(engine->submit(choice, listener.sink()));
  for (size_t i = 0; i < listeners.size(); ++i) {
    const Answer answer = listeners[i].wait();
    EXPECT_EQ(answer.tokens, known.tokens);
    EXPECT_EQ(answer.end.n_cached, i == 0 ? 0 : 499);
  }
  const Engine::Counts after = idle_counts(*engine);
  EXPECT_LT(after.n_prompt_tokens - before.n_prompt_tokens, 510);
  EXPECT_EQ(after.n_cached_tokens, before.n_cached_tokens);
  EXPECT_EQ(after.n_kept_snapshots, before.n_kept_snapshots);
  // Neither others nor later choices see anything of it.
  prompt[0] += 1;
  choice.prompt = prompt;
  EXPECT_EQ(ask(*engine, choice).end.n_cached, 0);
  EXPECT_EQ(ask(*engine, choice).end.n_cached, 0);
  EXPECT_EQ(ask(*engine, request(prompt, 6)).end.n_cached, 0);
}

TEST(Engine, equal_prompts_that_come_together_are_computed_once) {
  const auto engine = make_engine();
  std::vector<int32_t> prompt(500);
  for (size_t i = 0; i < prompt.size(); ++i) prompt[i] = static_cast<int32_t>(i * 7 % 3000);
  const int64_t before = engine->counts().n_prompt_tokens;
  std::vector<Listener> listeners(4);
  for (Listener& listener : listeners)
    ASSERT_TRUE(engine->submit(request(prompt, 4), listener.sink()));
  const Answer first = listeners[0].wait();
  for (size_t i = 1; i < 4; ++i) {
    const Answer answer = listeners[i].wait();
    EXPECT_EQ(answer.tokens, first.tokens);
    EXPECT_EQ(answer.end.n_cached, 499);
  }
  const Engine::Counts counts = idle_counts(*engine);
  EXPECT_LT(counts.n_prompt_tokens - before, 520);
  EXPECT_EQ(counts.n_cached_tokens, 3 * 499);
}

TEST(Engine, a_restart_goes_on_from_the_files_of_the_folder) {
  std::string folder = (std::filesystem::temp_directory_path() / "roost-engine-XXXXXX").string();
  ASSERT_NE(mkdtemp(folder.data()), nullptr);
  EngineOptions options = small();
  options.cache_folder = folder;
  std::vector<int32_t> prompt(500);
  for (size_t i = 0; i < prompt.size(); ++i) prompt[i] = static_cast<int32_t>(i * 7 % 3000);
  const Answer first = ask(*make_engine(options), request(prompt, 20));
  {
    const auto engine = make_engine(options);
    EXPECT_GT(engine->counts().n_cache_files, 0);
    EXPECT_EQ(engine->counts().n_kept_snapshots, 0);
    const Answer again = ask(*engine, request(prompt, 20));
    EXPECT_EQ(again.tokens, first.tokens);
    EXPECT_EQ(again.end.n_cached, 499);
    EXPECT_TRUE(again.end.is_from_disk);
    EXPECT_FALSE(ask(*engine, request(prompt, 20)).end.is_from_disk);
    const auto second = Engine::create(fledgling(), options, system_clock());
    ASSERT_FALSE(second);
    EXPECT_EQ(second.error().refusal, Refusal::CacheFolder);
  }
  std::filesystem::remove_all(folder);
}

TEST(Engine, a_prompt_tells_how_far_it_is) {
  const auto engine = make_engine();  // chunks of 128 rows
  std::vector<int32_t> prompt(300);
  for (size_t i = 0; i < prompt.size(); ++i) prompt[i] = static_cast<int32_t>(i % 97);
  EngineRequest r = request(prompt, 3);
  r.ignore_end_tokens = true;
  std::vector<int64_t> done;
  Listener listener;
  ASSERT_TRUE(engine->submit(r, [&](const EngineEvent& event) {
    if (event.kind == EngineEvent::Kind::kProgress) {
      EXPECT_EQ(event.n_prompt, 300);
      EXPECT_TRUE(event.tokens.empty());
      done.push_back(event.n_prompt_done);
    }
    listener.sink()(event);
  }));
  EXPECT_EQ(listener.wait().tokens.size(), 3u);
  EXPECT_GE(done.size(), 3u);
  EXPECT_TRUE(std::is_sorted(done.begin(), done.end()));
  EXPECT_EQ(done.back(), 300);
}

// What a reply's tokens are told to be when they are drawn, they are told as a part of a prompt:
// alone, cut into steps of few rows, beside others, and whether drafts are verified or not.
TEST(Engine, a_prompt_tells_its_logprobs_as_a_reply_does) {
  using Told = std::vector<TokenLogprobs>;
  const auto engine = make_engine(small_with_drafter());
  const auto tell_all = [](Told& prompt, Told& reply, Listener& listener) {
    return [&prompt, &reply, sink = listener.sink()](const EngineEvent& event) {
      if (event.kind == EngineEvent::Kind::kPrompt)
        prompt.insert(prompt.end(), event.logprobs.begin(), event.logprobs.end());
      if (event.kind == EngineEvent::Kind::kTokens)
        reply.insert(reply.end(), event.logprobs.begin(), event.logprobs.end());
      sink(event);
    };
  };
  const auto expect_equal = [](const Told& a, const Told& b) {
    ASSERT_EQ(a.size(), b.size());
    for (size_t i = 0; i < a.size(); ++i) {
      EXPECT_EQ(a[i].logprob, b[i].logprob) << i;
      ASSERT_EQ(a[i].top.size(), b[i].top.size());
      for (size_t k = 0; k < a[i].top.size(); ++k) {
        EXPECT_EQ(a[i].top[k].token, b[i].top[k].token) << i;
        EXPECT_EQ(a[i].top[k].logprob, b[i].top[k].logprob) << i;
      }
    }
  };
  EngineRequest asked = request(golden_answers().at("count").prompt, 60);
  asked.top_logprobs = 3;
  Told none, drawn, prompt, reply;
  Listener first;
  ASSERT_TRUE(engine->submit(asked, tell_all(none, drawn, first)));
  const Answer answer = first.wait();
  ASSERT_EQ(drawn.size(), answer.tokens.size());
  EXPECT_TRUE(none.empty());

  EngineRequest again = asked;
  again.prompt.insert(again.prompt.end(), answer.tokens.begin(), answer.tokens.end());
  again.new_tokens_max = 0;
  again.tells_prompt = true;
  Listener alone;
  ASSERT_TRUE(engine->submit(again, tell_all(prompt, reply, alone)));
  const Answer nothing = alone.wait();
  EXPECT_EQ(nothing.end.finish, Finish::kLength);
  EXPECT_TRUE(nothing.tokens.empty() && reply.empty());
  EXPECT_EQ(nothing.end.n_cached, 0);
  ASSERT_EQ(prompt.size(), again.prompt.size() - 1);
  expect_equal(Told(prompt.end() - static_cast<int64_t>(drawn.size()), prompt.end()), drawn);

  Told beside;
  Listener other, more;
  ASSERT_TRUE(engine->submit(request(asked.prompt, 200, 1.0, 7), other.sink()));
  other.wait_for_tokens(1);
  again.new_tokens_max = 8;
  ASSERT_TRUE(engine->submit(again, tell_all(beside, reply, more)));
  EXPECT_EQ(more.wait().tokens.size(), reply.size());
  other.wait();
  expect_equal(beside, prompt);
}

TEST(Engine, a_deadline_ends_a_request) {
  const auto engine = make_engine();
  EngineRequest late = request(golden_answers().at("count").prompt, 100'000);
  late.ignore_end_tokens = true;
  late.deadline_ns = 1;
  const Answer answer = ask(*engine, late);
  EXPECT_EQ(answer.end.finish, Finish::kError);
  EXPECT_EQ(answer.end.error->refusal, Refusal::RequestDeadline);
}

TEST(Engine, a_step_allocates_nothing) {
  for (const bool has_drafter : {false, true}) {
    std::promise<int64_t> measured;  // outlives the engine, which goes on behind the last look
    int64_t before = 0, n_tokens = 0;
    const auto engine = make_engine(has_drafter ? small_with_drafter() : small());
    const GoldenAnswer story = golden_answers().at("story");
    EngineRequest r = request(story.prompt, 120, 0.9, 4);
    r.ignore_end_tokens = true;
    ASSERT_TRUE(engine->submit(r, [&](const EngineEvent& event) {
      if (event.kind != EngineEvent::Kind::kTokens) return;
      if (++n_tokens == 20) before = n_allocations;
      if (n_tokens == 100) measured.set_value(n_allocations - before);
    }));
    EXPECT_EQ(measured.get_future().get(), 0) << "with a drafter: " << has_drafter;
  }
}

TEST(Engine, with_a_drafter_answers_are_the_same_and_its_figures_add_up) {
  const auto plain = make_engine(), drafted = make_engine(small_with_drafter());
  int64_t n_rounds = 0;
  for (const auto& [name, golden] : golden_answers()) {
    if (name.starts_with("picture")) continue;
    const EngineRequest r = request(golden.prompt, 160, 0.8, 11);
    const Answer want = ask(*plain, r), have = ask(*drafted, r);
    EXPECT_EQ(have.tokens, want.tokens) << name;
    const DraftFigures& f = have.end.drafts;
    n_rounds += f.n_rounds;  // a reply behind one whose drafts failed may try none
    EXPECT_EQ(f.n_rows, f.n_rounds + f.n_drafted);
    EXPECT_EQ(f.n_tokens, f.n_rounds + f.n_plain_steps + f.n_accepted);
    // Behind the first token; an end token counts, but is not kept.
    const bool has_end = have.end.finish == Finish::kEndToken;
    EXPECT_EQ(f.n_tokens, static_cast<int64_t>(have.tokens.size()) - 1 + has_end);
    EXPECT_LE(f.n_accepted, f.n_drafted);
    EngineRequest off = r;
    off.drafts_max = 0;
    EXPECT_EQ(ask(*drafted, off).end.drafts.n_rounds, 0);
  }
  EXPECT_GT(n_rounds, 0);
}

}  // namespace
}  // namespace roost
