#include "server/canary.h"

#include <memory>
#include <utility>

namespace roost {

namespace {

constexpr int kCanaryTokens = 8;

}  // namespace

void run_canary(Engine& engine, const Tokenizer& tokenizer,
                std::function<void(Result<CanaryReply>)> done) {
  EngineRequest request;
  request.prompt = tokenizer.encode("The");
  request.new_tokens_max = kCanaryTokens;
  request.sampling.temperature = 0;
  request.ignore_end_tokens = true;
  request.uses_cache = false;
  const auto reply = std::make_shared<CanaryReply>();
  const Result<Engine::RequestId> submitted =
      engine.submit(std::move(request), [reply, done](const EngineEvent& event) {
        reply->tokens.insert(reply->tokens.end(), event.tokens.begin(), event.tokens.end());
        if (event.kind != EngineEvent::Kind::kFinished) return;
        reply->took_ns = event.finished_ns - event.submitted_ns;
        if (event.error) return done(*event.error);
        if (event.finish == Finish::kCancelled) return done(Error{Refusal::ServerDraining, ""});
        done(std::move(*reply));
      });
  if (!submitted) done(submitted.error());
}

}  // namespace roost
