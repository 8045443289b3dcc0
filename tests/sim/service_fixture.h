// The service over fake engines and fake connections: what its tests start from.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "server/service.h"
#include "tests/sim/fake_exchange.h"
#include "tests/sim/fledgling_text.h"

namespace roost {

class ServiceFixture : public testing::Test {
 protected:
  explicit ServiceFixture(ServiceOptions options = {})
      : service_(std::move(options), system_clock(), random_) {
    service_.set_port(8080);
  }

  // Engines end here, on this thread, when no reply is left that holds one or the service.
  void TearDown() override {
    for (const FakeModel& fake : all_) fake.engine->release();
    while (service_.n_running() > 0) std::this_thread::yield();
    for (const FakeModel& fake : all_) fake.model->engine.reset();
    for (const std::shared_ptr<FakeExchange>& exchange : exchanges_) exchange->settle();
  }

  void serve(FakeEngineOptions options) {
    fake_ = fledgling_with(std::move(options));
    all_.push_back(fake_);
    service_.serve(fake_.model);
  }

  HttpRequest request(std::string method, std::string path, std::string body = "") {
    HttpRequest out;
    out.method = std::move(method);
    const size_t mark = std::min(path.find('?'), path.size());
    out.query = mark < path.size() ? path.substr(mark + 1) : "";
    out.path = path.substr(0, mark);
    out.body = std::move(body);
    out.headers = {{"host", "127.0.0.1:8080"}};
    if (!out.body.empty()) out.headers.emplace_back("content-type", "application/json");
    return out;
  }

  std::shared_ptr<FakeExchange> send(HttpRequest http) {
    auto exchange = std::make_shared<FakeExchange>();
    // On the exchange's executor, as a server does; answered or admitted when this returns.
    exchange->post([this, &http, exchange] { service_.handle(std::move(http), exchange); });
    exchange->settle();
    exchanges_.push_back(exchange);
    return exchange;
  }
  std::shared_ptr<FakeExchange> get(const std::string& path) { return send(request("GET", path)); }
  std::shared_ptr<FakeExchange> post(const std::string& path, const std::string& body) {
    return send(request("POST", path, body));
  }
  json::Value answer_of(const std::shared_ptr<FakeExchange>& exchange) {
    Result<json::Value> body = json::parse(exchange->wait().body);
    EXPECT_TRUE(body) << exchange->wait().body;
    return body ? std::move(body).value() : json::Value();
  }
  std::string refusal_of(const std::shared_ptr<FakeExchange>& exchange) {
    const json::Value body = answer_of(exchange);
    const json::Value* error = body.find("error");
    return error == nullptr ? "none" : error->find("refusal")->as_string();
  }

  SeededRandom random_{3};
  Service service_;
  FakeModel fake_;
  std::vector<FakeModel> all_;
  std::vector<std::shared_ptr<FakeExchange>> exchanges_;
};

}  // namespace roost
