// Steps that a card repeats: the launches of a small step become one graph, and a later step of the
// same launches runs it again.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "device/cuda/stream.h"

namespace roost::cuda {

// What may differ between two steps of one graph are the bytes of lists, which lie at fixed places.
// All else (kernels, grids, parameters, places) makes the key of the graph, byte for byte, so a
// graph can only repeat what the step would have launched.
class StepGraphs {
 public:
  StepGraphs(const Stream& stream, size_t list_bytes);

  // Calls body once to learn the step's key and lists; where no graph has the key, once more to
  // make one. Each time body must make the same calls.
  void run(const std::function<void()>& body);

  bool is_active() const { return mode_ != Mode::kOff; }  // inside of run
  bool is_dry() const { return mode_ == Mode::kDry; }     // nothing is to be queued

  void note(const void* bytes, size_t n_bytes);  // a part of the key
  // Where a list lies on the card. Equal lists of one step share their place.
  const std::byte* push(const void* from, size_t n_bytes);
  // A list to a place of the caller's.
  void send(std::byte* to, const void* from, size_t n_bytes);

 private:
  enum class Mode { kOff, kDry, kCapture };
  struct Destroy {
    void operator()(void* graph) const;
  };
  struct Graph {
    std::vector<std::byte> key;
    std::unique_ptr<void, Destroy> graph;
  };
  struct Event {
    void operator()(void* event) const;
  };
  struct List {
    size_t at, n_bytes;
  };
  size_t place(const void* from, size_t n_bytes);
  void* graph_of_key(const std::function<void()>& body);

  const Stream& stream_;
  PinnedBuffer host_;
  DeviceBuffer device_;
  std::unique_ptr<void, Event> done_;  // behind the last graph: the lists may be written again
  Mode mode_ = Mode::kOff;
  std::vector<std::byte> key_;
  std::vector<List> lists_;
  size_t used_ = 0;
  std::vector<Graph> graphs_;  // the latest used last
};

}  // namespace roost::cuda
