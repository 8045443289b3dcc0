// A runner around another one: to listen to it, or to keep its time.
#pragma once

#include <memory>
#include <string>
#include <utility>

#include "engine/step_runner.h"

namespace roost {

// Passes every call on; derive and override what is of interest.
class RunnerAround : public StepRunner {
 public:
  explicit RunnerAround(std::unique_ptr<StepRunner> inner) : inner_(std::move(inner)) {}

  void run(const StepRows& rows, std::span<int32_t> drawn) override { inner_->run(rows, drawn); }
  int32_t draft_rows_max() const override { return inner_->draft_rows_max(); }
  void absorb(std::span<const TapRows> rows) override { inner_->absorb(rows); }
  void draft(std::span<const DraftBlock> blocks, std::span<int32_t> tokens) override {
    inner_->draft(blocks, tokens);
  }
  void reset_slot(int32_t slot) override { inner_->reset_slot(slot); }
  void replay(int32_t slot, int32_t n_rows) override { inner_->replay(slot, n_rows); }
  void save_state(int32_t slot, int32_t to) override { inner_->save_state(slot, to); }
  bool load_state(int32_t from, int32_t slot) override { return inner_->load_state(from, slot); }
  void copy_page(int32_t from, int32_t to) override { inner_->copy_page(from, to); }
  size_t page_bytes() const override { return inner_->page_bytes(); }
  size_t snapshot_bytes() const override { return inner_->snapshot_bytes(); }
  void read_page(int32_t page, std::span<std::byte> to) const override {
    inner_->read_page(page, to);
  }
  void write_page(int32_t page, std::span<const std::byte> from) override {
    inner_->write_page(page, from);
  }
  void read_snapshot(int32_t snapshot, std::span<std::byte> to) const override {
    inner_->read_snapshot(snapshot, to);
  }
  void write_snapshot(int32_t snapshot, std::span<const std::byte> from) override {
    inner_->write_snapshot(snapshot, from);
  }
  std::string name() const override { return inner_->name(); }
  const Error* loss() const override { return inner_->loss(); }

 private:
  const std::unique_ptr<StepRunner> inner_;
};

}  // namespace roost
