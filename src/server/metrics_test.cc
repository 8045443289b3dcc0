#include "server/metrics.h"

#include <gtest/gtest.h>

namespace roost {
namespace {

TEST(Metrics, counters_gauges_and_histograms_have_the_text_format) {
  Metrics metrics;
  metrics.add(Metric::kPromptTokens, 5);
  metrics.add(Metric::kPromptTokens, 2);
  metrics.set(Metric::kRequestsRunning, 3);
  metrics.set(Metric::kRequestsRunning, 1);
  metrics.observe(Metric::kTtft, 0.02);
  metrics.observe(Metric::kTtft, 9999);
  metrics.observe(Metric::kInterToken, 0.3, 4);
  const std::string text = metrics.text("m", false);
  for (const char* part :
       {"# TYPE roost_prompt_tokens_total counter\nroost_prompt_tokens_total{model_name=\"m\"} 7\n",
        "roost_requests_running{model_name=\"m\"} 1\n",
        "roost_ttft_seconds_bucket{model_name=\"m\",le=\"0.01\"} 0\n",
        "roost_ttft_seconds_bucket{model_name=\"m\",le=\"0.02\"} 1\n",
        "roost_ttft_seconds_bucket{model_name=\"m\",le=\"2560\"} 1\n",
        "roost_ttft_seconds_bucket{model_name=\"m\",le=\"+Inf\"} 2\n",
        "roost_ttft_seconds_count{model_name=\"m\"} 2\n",
        "roost_inter_token_seconds_count{model_name=\"m\"} 4\n",
        "roost_inter_token_seconds_sum{model_name=\"m\"} 1.2\n"})
    EXPECT_NE(text.find(part), std::string::npos) << part << text.substr(0, 400);
  EXPECT_EQ(text.find("vllm:"), std::string::npos);
}

TEST(Metrics, compatible_names_carry_the_same_values) {
  Metrics metrics;
  metrics.observe(Metric::kInterToken, 0.3);
  const std::string text = metrics.text("m", true);
  for (const char* name :
       {"vllm:inter_token_latency_seconds", "vllm:time_per_output_token_seconds"})
    EXPECT_NE(text.find(std::string(name) + "_count{model_name=\"m\",engine=\"0\"} 1\n"),
              std::string::npos);
}

TEST(Metrics, labels_are_escaped_and_kept_apart) {
  EXPECT_EQ(label("a", "x\"\\\n"), "a=\"x\\\"\\\\\\n\"");
  Metrics metrics;
  metrics.add(Metric::kRequestsRefused, 1, label("refusal", "a"));
  metrics.add(Metric::kRequestsRefused, 2, label("refusal", "b"));
  const std::string text = metrics.text("m", false);
  EXPECT_NE(text.find("refusal=\"a\"} 1\n"), std::string::npos);
  EXPECT_NE(text.find("refusal=\"b\"} 2\n"), std::string::npos);
}

}  // namespace
}  // namespace roost
