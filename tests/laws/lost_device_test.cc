// A device that fails while it works: every request ends by name, nothing it said since is believed
// or written to a file, and the engine's owner is told.
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <future>

#include "engine/engine.h"
#include "tests/model_machine.h"
#include "tests/model_run.h"

namespace roost {
namespace {

#ifdef ROOST_MODEL_CUDA

// Reads a page far behind the pool's end: the fault shows when somebody waits for the card.
class FailingMachine {
 public:
  explicit FailingMachine(const ModelWeights& weights)
      : ops_(testing::hardware()->make_ops(Qwen35::ops_limits(weights.config, 1))) {}
  std::shared_ptr<Hardware> hardware() { return testing::hardware(); }
  void fail() {
    const PageCopy far{1 << 24, 0};
    ops_->run(CopyPages{.pool = pool_.tensor(DType::kF32, {1, 4096}), .copies = {&far, 1}});
  }

 private:
  std::unique_ptr<Ops> ops_;
  Buffer pool_ = testing::hardware()->device().take(4096 * sizeof(float));
};

#else

// The host's memory, with a switch: what is read behind it does not arrive, and that is when the
// loss shows, in the middle of a step.
class FailingDevice final : public Device {
 public:
  Buffer take(size_t n_bytes) override { return host_device().take(n_bytes); }
  void write(std::byte* to, const void* from, size_t n) override {
    host_device().write(to, from, n);
  }
  void clear(std::byte* to, size_t n) override { host_device().clear(to, n); }
  void copy(std::byte* to, const std::byte* from, size_t n) override {
    host_device().copy(to, from, n);
  }
  void read(void* to, const std::byte* from, size_t n) override {
    has_failed = has_failed || is_failing;
    if (!has_failed) host_device().read(to, from, n);
  }
  void wait() override {}
  size_t available_bytes() const override { return 0; }
  const Error* loss() const override { return has_failed ? &loss_ : nullptr; }

  bool is_failing = false, has_failed = false;

 private:
  const Error loss_{Refusal::DeviceLost, "switched off"};
};

class FailingHardware final : public Hardware {
 public:
  Device& device() override { return failing; }
  ThreadPool& pool() override { return cpu_->pool(); }
  std::unique_ptr<Ops> make_ops(const OpsLimits& limits) override { return cpu_->make_ops(limits); }
  size_t workspace_bytes(const OpsLimits& limits) const override {
    return cpu_->workspace_bytes(limits);
  }

  FailingDevice failing;

 private:
  const std::unique_ptr<Hardware> cpu_ = make_cpu_hardware(1);
};

class FailingMachine {
 public:
  explicit FailingMachine(const ModelWeights&) {}
  std::shared_ptr<Hardware> hardware() { return hardware_; }
  void fail() { hardware_->failing.is_failing = true; }

 private:
  const std::shared_ptr<FailingHardware> hardware_ = std::make_shared<FailingHardware>();
};

#endif

struct Ended {
  size_t n_tokens = 0;
  std::promise<EngineEvent> end;
};

size_t n_files(const std::string& folder) {
  size_t n = 0;
  for (const auto& entry : std::filesystem::directory_iterator(folder))
    n += entry.file_size() > (1 << 16);  // an entry of the cache, not its lock
  return n;
}

void lose_the_device_while_it_serves() {
  constexpr size_t kTokensBefore = 3;
  std::string folder = (std::filesystem::temp_directory_path() / "roost-lost-XXXXXX").string();
  ASSERT_NE(mkdtemp(folder.data()), nullptr);
  const auto weights = testing::placed(testing::load_model(ROOST_SOURCE_DIR "/models/fledgling"));
  FailingMachine machine(*weights);
  std::promise<void> told;
  EngineOptions options;
  options.context_max = 512;
  options.streams_max = 2;
  options.hardware = machine.hardware();
  options.has_drafts = false;
  options.cache_folder = folder;
  options.cache_write_bytes = 1;  // one entry at most before the end, when the rest is written
  options.when_lost = [&] { told.set_value(); };
  auto engine = Engine::create(weights, options, system_clock()).value();

  std::vector<Ended> requests(4);  // two run, two wait
  for (size_t i = 0; i < requests.size(); ++i) {
    EngineRequest request;
    request.prompt = std::vector<int32_t>(80, static_cast<int32_t>(100 + i));
    request.new_tokens_max = 300;
    request.ignore_end_tokens = true;
    const auto sink = [&, i](const EngineEvent& event) {
      requests[i].n_tokens += event.tokens.size();
      if (event.kind == EngineEvent::Kind::kFinished) return requests[i].end.set_value(event);
      if (i == 0 && requests[0].n_tokens == kTokensBefore) machine.fail();
    };
    ASSERT_TRUE(engine->submit(std::move(request), sink));
  }
  for (Ended& request : requests) {
    const EngineEvent end = request.end.get_future().get();
    EXPECT_EQ(end.finish, Finish::kError);
    ASSERT_TRUE(end.error);
    EXPECT_EQ(end.error->refusal, Refusal::DeviceLost);
  }
  EXPECT_EQ(requests[0].n_tokens, kTokensBefore);
  told.get_future().get();

  EngineRequest late;
  late.prompt = {1};
  late.new_tokens_max = 1;
  const auto refused = engine->submit(std::move(late), [](const EngineEvent&) {});
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().refusal, Refusal::DeviceLost);
  const size_t n_before = n_files(folder);
  engine.reset();
  EXPECT_EQ(n_files(folder), n_before);
  std::filesystem::remove_all(folder);
}

#ifdef ROOST_MODEL_CUDA

// In a process of its own, which has lost its card.
TEST(LostDevice, ends_every_request_by_name) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto serve = [] {
    lose_the_device_while_it_serves();
    std::_Exit(::testing::Test::HasFailure() ? 1 : 0);
  };
  EXPECT_EXIT(serve(), ::testing::ExitedWithCode(0), "");
}

#else

TEST(LostDevice, ends_every_request_by_name) {
  lose_the_device_while_it_serves();
}

#endif

}  // namespace
}  // namespace roost
