// A backend that keeps time: which op a step spends its milliseconds in.
#pragma once

#include <chrono>
#include <map>
#include <string>

#include "ops/ops.h"

namespace roost {

// Passes every call on to `inner`, which must outlive it.
class TimedOps final : public Ops {
 public:
  explicit TimedOps(Ops& inner) : inner_(inner) {}

  void run(const Embed& op) override { time("embed", op); }
  void run(const AddRmsNorm& op) override { time("add_rms_norm", op); }
  void run(const QuantLinear& op) override { time("quant_linear", op); }
  void run(const ConvGates& op) override { time("conv_gates", op); }
  void run(const GatedDelta& op) override { time("gated_delta", op); }
  void run(const QkNormRopeAppend& op) override { time("qk_norm_rope_append", op); }
  void run(const Attention& op) override { time("attention", op); }
  void run(const Route& op) override { time("route", op); }
  void run(const MoeExperts& op) override { time("moe_experts", op); }
  void run(const Sample& op) override { time("sample", op); }
  void run(const CopyPages& op) override { time("copy_pages", op); }

  Device& device() override { return inner_.device(); }
  DType activation() const override { return inner_.activation(); }
  std::string name() const override { return inner_.name(); }
  std::string kernel_for(const QuantMatrix& w) const override { return inner_.kernel_for(w); }

  const std::map<std::string, double>& seconds() const { return seconds_; }  // by name of op
  void reset() { seconds_.clear(); }

 private:
  template <class Op>
  void time(const char* name, const Op& op) {
    device().wait();
    const auto begin = std::chrono::steady_clock::now();
    inner_.run(op);
    device().wait();
    const auto end = std::chrono::steady_clock::now();
    seconds_[name] += std::chrono::duration<double>(end - begin).count();
  }

  Ops& inner_;
  std::map<std::string, double> seconds_;
};

}  // namespace roost
