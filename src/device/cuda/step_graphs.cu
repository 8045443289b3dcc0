// Capture and replay over the CUDA runtime.
#include "device/cuda/step_graphs.h"

#include <algorithm>
#include <cstring>

#include "base/check.h"
#include "device/cuda/check.cuh"

namespace roost::cuda {
namespace {

constexpr size_t kAlign = 256;
constexpr size_t kKeyBytes = size_t{1} << 20;  // reserved, so that a usual step allocates nothing
constexpr size_t kListsMax = 1024;
constexpr size_t kGraphsMax = 32;

cudaStream_t raw_of(const Stream& stream) {
  return static_cast<cudaStream_t>(stream.raw());
}

}  // namespace

void StepGraphs::Destroy::operator()(void* graph) const {
  cudaGraphExecDestroy(static_cast<cudaGraphExec_t>(graph));
}

void StepGraphs::Event::operator()(void* event) const {
  cudaEventDestroy(static_cast<cudaEvent_t>(event));
}

StepGraphs::StepGraphs(const Stream& stream, size_t list_bytes)
    : stream_(stream), host_(list_bytes), device_(list_bytes) {
  cudaEvent_t event = nullptr;
  check(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
  done_.reset(event);
  key_.reserve(kKeyBytes);
  lists_.reserve(kListsMax);
}

void StepGraphs::note(const void* bytes, size_t n_bytes) {
  if (mode_ != Mode::kDry) return;
  const auto* from = static_cast<const std::byte*>(bytes);
  key_.insert(key_.end(), from, from + n_bytes);
}

size_t StepGraphs::place(const void* from, size_t n_bytes) {
  for (const List& list : lists_) {
    if (list.n_bytes == n_bytes && std::memcmp(host_.data() + list.at, from, n_bytes) == 0)
      return list.at;
  }
  const size_t at = used_;
  ROOST_CHECK(at + n_bytes <= host_.n_bytes());
  used_ += (n_bytes + kAlign - 1) / kAlign * kAlign;
  if (n_bytes > 0) std::memcpy(host_.data() + at, from, n_bytes);
  lists_.push_back({at, n_bytes});
  return at;
}

const std::byte* StepGraphs::push(const void* from, size_t n_bytes) {
  return device_.data() + place(from, n_bytes);
}

void StepGraphs::send(std::byte* to, const void* from, size_t n_bytes) {
  const size_t at = place(from, n_bytes);
  const std::byte* host = host_.data() + at;
  note(&to, sizeof to);
  note(&host, sizeof host);
  note(&n_bytes, sizeof n_bytes);
  // Inside of the card, as the lists travel together.
  if (mode_ == Mode::kCapture && n_bytes > 0)
    check(cudaMemcpyAsync(to, device_.data() + at, n_bytes, cudaMemcpyDeviceToDevice,
                          raw_of(stream_)));
}

void* StepGraphs::graph_of_key(const std::function<void()>& body) {
  const auto found = std::find_if(graphs_.begin(), graphs_.end(),
                                  [this](const Graph& graph) { return graph.key == key_; });
  if (found != graphs_.end()) {
    std::rotate(found, found + 1, graphs_.end());
    return graphs_.back().graph.get();
  }
  lists_.clear();
  used_ = 0;
  mode_ = Mode::kCapture;
  check(cudaStreamBeginCapture(raw_of(stream_), cudaStreamCaptureModeThreadLocal));
  body();
  cudaGraph_t captured = nullptr;
  cudaGraphExec_t graph = nullptr;
  check(cudaStreamEndCapture(raw_of(stream_), &captured));
  if (card_loss()) return nullptr;
  check(cudaGraphInstantiate(&graph, captured, 0));
  check(cudaGraphDestroy(captured));
  if (graphs_.size() == kGraphsMax) graphs_.erase(graphs_.begin());
  graphs_.push_back({key_, std::unique_ptr<void, Destroy>(graph)});
  return graph;
}

void StepGraphs::run(const std::function<void()>& body) {
  check(cudaEventSynchronize(static_cast<cudaEvent_t>(done_.get())));
  key_.clear();
  lists_.clear();
  used_ = 0;
  mode_ = Mode::kDry;
  body();
  void* graph = graph_of_key(body);
  mode_ = Mode::kOff;
  if (graph == nullptr) return;  // the card is lost
  stream_.copy_to_device(device_.data(), host_.data(), used_);
  check(cudaGraphLaunch(static_cast<cudaGraphExec_t>(graph), raw_of(stream_)));
  check(cudaEventRecord(static_cast<cudaEvent_t>(done_.get()), raw_of(stream_)));
}

}  // namespace roost::cuda
