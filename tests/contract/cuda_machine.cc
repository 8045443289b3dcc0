// Moving a call of an op to the card and back.
#include "tests/contract/cuda_machine.h"

#include <algorithm>
#include <cstring>
#include <deque>
#include <map>
#include <vector>

#include "base/check.h"
#include "device/cuda/device_memory.h"
#include "device/cuda/stream.h"
#include "ops/cuda_backend.h"
#include "tests/contract/bricks.h"

namespace roost::contract {
namespace {

constexpr size_t kAlign = 256;
constexpr size_t kMirrorBytes = size_t{96} << 20;
constexpr size_t kScratchBytes = size_t{64} << 20;
constexpr size_t kStagingBytes = size_t{4} << 20;
constexpr std::byte kNan{0xFF};
constexpr int kFewBlocks = 100;  // a machine with fewer has its weights in bricks

// What all calls of the program share.
struct Card {
  cuda::Stream stream;
  cuda::PinnedBuffer host{kMirrorBytes};
  cuda::DeviceBuffer device{kMirrorBytes};
  cuda::DeviceArena scratch{kScratchBytes};
  cuda::Staging staging{stream, kStagingBytes};
};

Card& card() {
  static Card shared;
  return shared;
}

// Pieces of host memory and their places on the card. Pieces that touch are one, so tensors that
// share memory share it there too; a place keeps its address modulo 256.
class Mirror {
 public:
  void add(const std::byte* data, size_t n_bytes) {
    if (data == nullptr) return;
    const auto begin = reinterpret_cast<uintptr_t>(data);
    pieces_.push_back({begin - kGuardBytes, begin + n_bytes + kGuardBytes, 0});
  }

  void lay_out() {
    std::sort(pieces_.begin(), pieces_.end(),
              [](const Piece& a, const Piece& b) { return a.begin < b.begin; });
    std::vector<Piece> joined;
    for (const Piece& piece : pieces_) {
      if (!joined.empty() && piece.begin <= joined.back().end) {
        joined.back().end = std::max(joined.back().end, piece.end);
      } else {
        joined.push_back(piece);
      }
    }
    pieces_ = joined;
    for (Piece& piece : pieces_) {
      piece.offset = n_bytes_ + piece.begin % kAlign;
      n_bytes_ = (piece.offset + (piece.end - piece.begin) + kAlign - 1) / kAlign * kAlign;
    }
    ROOST_CHECK(n_bytes_ <= kMirrorBytes);
  }

  void upload() const {
    for (const Piece& piece : pieces_)
      std::memcpy(card().host.data() + piece.offset, reinterpret_cast<const void*>(piece.begin),
                  piece.end - piece.begin);
    card().stream.copy_to_device(card().device.data(), card().host.data(), n_bytes_);
  }

  void download() const {
    card().stream.copy_to_host(card().host.data(), card().device.data(), n_bytes_);
    card().stream.wait();
    for (const Piece& piece : pieces_)
      std::memcpy(reinterpret_cast<void*>(piece.begin), card().host.data() + piece.offset,
                  piece.end - piece.begin);
  }

  std::byte* place_of(const std::byte* data) const {
    if (data == nullptr) return nullptr;
    const auto address = reinterpret_cast<uintptr_t>(data);
    for (const Piece& piece : pieces_) {
      if (address >= piece.begin && address < piece.end)
        return card().device.data() + piece.offset + (address - piece.begin);
    }
    ROOST_CHECK(false);
  }

 private:
  struct Piece {
    uintptr_t begin, end;
    size_t offset;
  };
  std::vector<Piece> pieces_;
  size_t n_bytes_ = 0;
};

// Matrices as bricks, the same memory in both passes. Lists of experts lie at equal distances.
class BrickStore {
 public:
  QuantMatrix of(const QuantMatrix& w) {
    QuantMatrix bricks = brick_layout(w);
    auto& made = matrices_[w.codes];
    if (made.empty()) made = guarded(bricks_of(w));
    bricks.codes = reinterpret_cast<const std::byte*>(made.data() + kGuardBytes);
    return bricks;
  }
  void replace(std::vector<GatedMlp>& experts) {
    std::vector<uint8_t>& made = experts_;
    const bool is_first = made.empty();
    if (is_first) {
      std::vector<uint8_t> all;
      for (const GatedMlp& mlp : experts) {
        for (const QuantMatrix* w : {&mlp.gate, &mlp.up, &mlp.down}) {
          const std::vector<uint8_t> bricks = bricks_of(*w);
          all.insert(all.end(), bricks.begin(), bricks.end());
        }
      }
      made = guarded(std::move(all));
    }
    const auto* next = reinterpret_cast<const std::byte*>(made.data() + kGuardBytes);
    for (GatedMlp& mlp : experts) {
      for (QuantMatrix* w : {&mlp.gate, &mlp.up, &mlp.down}) {
        *w = brick_layout(*w);
        w->codes = next;
        next += w->n_code_bytes();
      }
    }
  }

 private:
  static std::vector<uint8_t> guarded(std::vector<uint8_t> bytes) {
    bytes.insert(bytes.begin(), kGuardBytes, 0);
    bytes.insert(bytes.end(), kGuardBytes, 0);
    return bytes;
  }
  std::map<const std::byte*, std::vector<uint8_t>> matrices_;
  std::vector<uint8_t> experts_;
};

// Both passes over the memory of an op: the first notes it, the second puts its place instead.
// Matrices behind pointers are copied, for the op may not change them.
class Mover {
 public:
  // bricks: takes the matrices that have such a form; null: they stay as they are.
  Mover(Mirror& mirror, bool is_second, BrickStore* bricks)
      : mirror_(mirror), is_second_(is_second), bricks_(bricks) {}

  void operator()(Tensor& tensor) const {
    if (!tensor.exists()) return;
    if (is_second_) {
      tensor.data = mirror_.place_of(tensor.data);
    } else {
      mirror_.add(tensor.data, tensor.n_bytes());
    }
  }
  void operator()(QuantMatrix& w) const {
    if (bricks_ != nullptr && has_bricks(w)) w = bricks_->of(w);
    place(w);
  }
  // A table is always in the checkpoint's packing.
  void place(QuantMatrix& w) const {
    bytes(w.codes, w.n_code_bytes());
    if (w.format != QuantMatrix::Format::kAffine) return;
    bytes(w.scales, w.n_scale_bytes());
    bytes(w.biases, w.n_scale_bytes());
  }
  void operator()(std::vector<GatedMlp>& experts) const {
    const auto takes = [](const GatedMlp& mlp) {
      return has_bricks(mlp.gate) && has_bricks(mlp.up) && has_bricks(mlp.down);
    };
    if (bricks_ != nullptr && takes(experts[0])) bricks_->replace(experts);
    for (GatedMlp& mlp : experts) {
      place(mlp.gate);
      place(mlp.up);
      place(mlp.down);
    }
  }
  void operator()(GatedMlp& mlp) const {
    (*this)(mlp.gate);
    (*this)(mlp.up);
    (*this)(mlp.down);
  }
  template <class... T>
  void all(T&... items) const {
    ((*this)(items), ...);
  }

 private:
  void bytes(const std::byte*& data, size_t n_bytes) const {
    if (is_second_) {
      data = mirror_.place_of(data);
    } else {
      mirror_.add(data, n_bytes);
    }
  }

  Mirror& mirror_;
  bool is_second_;
  BrickStore* bricks_;
};

// Copies of what an op points to.
struct Kept {
  std::deque<QuantMatrix> matrices;
  std::deque<GatedMlp> mlps;
  std::vector<GatedMlp> experts;
};

void move(Embed& op, const Mover& mover, Kept& kept) {
  mover.place(kept.matrices.emplace_back(*op.table));
  op.table = &kept.matrices.back();
  mover.all(op.tokens, op.out);
}

void move(AddRmsNorm& op, const Mover& mover, Kept&) {
  mover.all(op.x, op.add, op.experts.y, op.experts.ids, op.experts.weights, op.experts.shared_gate,
            op.weight, op.rows, op.out, op.tap);
}

void move(QuantLinear& op, const Mover& mover, Kept& kept) {
  mover(op.x);
  for (int p = 0; p < op.n_parts; ++p) {
    LinearPart& part = op.parts[static_cast<size_t>(p)];
    mover(kept.matrices.emplace_back(*part.w));
    part.w = &kept.matrices.back();
    mover(part.y);
  }
}

void move(ConvGates& op, const Mover& mover, Kept&) {
  mover.all(op.qkv, op.b, op.a, op.conv_weight, op.a_log, op.dt_bias, op.tail, op.store_qkv,
            op.store_b, op.store_a, op.q, op.k, op.v, op.kq, op.beta, op.decay);
}

void move(GatedDelta& op, const Mover& mover, Kept&) {
  mover.all(op.q, op.k, op.v, op.kq, op.beta, op.decay, op.z, op.norm_weight, op.state, op.out);
}

void move(QkNormRopeAppend& op, const Mover& mover, Kept&) {
  mover.all(op.q_gate, op.k, op.v, op.q_weight, op.k_weight, op.rope, op.q, op.k_pages, op.v_pages);
}

void move(Attention& op, const Mover& mover, Kept&) {
  mover.all(op.q, op.q_gate, op.k_pages, op.v_pages, op.out);
}

void move(Route& op, const Mover& mover, Kept&) {
  mover.all(op.logits, op.shared_logit, op.ids, op.weights, op.shared_gate);
}

void move(MoeExperts& op, const Mover& mover, Kept& kept) {
  mover.all(op.x, op.ids, op.y);
  kept.experts.assign(op.experts.begin(), op.experts.end());
  mover(kept.experts);
  op.experts = kept.experts;
  if (op.shared == nullptr) return;
  mover(kept.mlps.emplace_back(*op.shared));
  op.shared = &kept.mlps.back();
}

void move(Sample& op, const Mover& mover, Kept&) {
  mover.all(op.logits, op.tokens);
}

void move(CopyPages& op, const Mover& mover, Kept&) {
  mover(op.pool);
}

void move(DraftConv& op, const Mover& mover, Kept&) {
  mover.all(op.x, op.dynamic, op.base, op.out);
}

void move(DraftAttention& op, const Mover& mover, Kept&) {
  mover.all(op.q, op.k, op.v, op.q_weight, op.k_weight, op.rope, op.k_pages, op.v_pages, op.out);
}

void move(DraftSelect& op, const Mover& mover, Kept& kept) {
  mover.all(op.logits, op.hidden, op.ids, op.scores, op.tokens);
  for (const QuantMatrix** table : {&op.predecessor, &op.successor}) {
    if (*table == nullptr) continue;
    mover.place(kept.matrices.emplace_back(**table));
    *table = &kept.matrices.back();
  }
}

void launch(const Embed& op, CudaContext& context) {
  embed_cuda(op, context);
}
void launch(const AddRmsNorm& op, CudaContext& context) {
  add_rms_norm_cuda(op, context);
}
void launch(const QuantLinear& op, CudaContext& context) {
  quant_linear_cuda(op, context);
}
void launch(const ConvGates& op, CudaContext& context) {
  conv_gates_cuda(op, context);
}
void launch(const GatedDelta& op, CudaContext& context) {
  gated_delta_cuda(op, context);
}
void launch(const QkNormRopeAppend& op, CudaContext& context) {
  qk_norm_rope_append_cuda(op, context);
}
void launch(const Attention& op, CudaContext& context) {
  attention_cuda(op, context);
}
void launch(const Route& op, CudaContext& context) {
  route_cuda(op, context);
}
void launch(const MoeExperts& op, CudaContext& context) {
  moe_experts_cuda(op, context);
}
void launch(const Sample& op, CudaContext& context) {
  sample_cuda(op, context);
}
void launch(const CopyPages& op, CudaContext& context) {
  copy_pages_cuda(op, context);
}
void launch(const DraftConv& op, CudaContext& context) {
  draft_conv_cuda(op, context);
}
void launch(const DraftAttention& op, CudaContext& context) {
  draft_attention_cuda(op, context);
}
void launch(const DraftSelect& op, CudaContext& context) {
  draft_select_cuda(op, context);
}

}  // namespace

template <class Op>
void CudaMachine::run_on_card(const Op& op, int blocks_max) {
  Mirror mirror;
  Kept noted, kept;
  Op first = op, moved = op;
  BrickStore store;
  BrickStore* bricks = blocks_max < kFewBlocks ? &store : nullptr;
  move(first, Mover(mirror, false, bricks), noted);
  mirror.lay_out();
  move(moved, Mover(mirror, true, bricks), kept);
  mirror.upload();
  card().stream.fill(card().scratch.data(), kNan, card().scratch.n_used_max());
  CudaContext context{card().stream, card().scratch, card().staging, blocks_max};
  launch(moved, context);
  mirror.download();
}

template void CudaMachine::run_on_card(const Embed&, int);
template void CudaMachine::run_on_card(const AddRmsNorm&, int);
template void CudaMachine::run_on_card(const QuantLinear&, int);
template void CudaMachine::run_on_card(const ConvGates&, int);
template void CudaMachine::run_on_card(const GatedDelta&, int);
template void CudaMachine::run_on_card(const QkNormRopeAppend&, int);
template void CudaMachine::run_on_card(const Attention&, int);
template void CudaMachine::run_on_card(const Route&, int);
template void CudaMachine::run_on_card(const MoeExperts&, int);
template void CudaMachine::run_on_card(const Sample&, int);
template void CudaMachine::run_on_card(const CopyPages&, int);
template void CudaMachine::run_on_card(const DraftConv&, int);
template void CudaMachine::run_on_card(const DraftAttention&, int);
template void CudaMachine::run_on_card(const DraftSelect&, int);

}  // namespace roost::contract
