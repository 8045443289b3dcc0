// Building the tree of tokens and walking it with one automaton.
#include "grammar/token_mask.h"

#include <algorithm>
#include <iterator>
#include <numeric>

namespace roost {

namespace {

constexpr std::string_view kStringMarks = "\\\"";

}  // namespace

TokenTree::TokenTree(std::span<const std::string_view> bytes_of, std::span<const int32_t> ids,
                     size_t n_skipped)
    : n_skipped_(n_skipped) {
  std::vector<size_t> order;
  int32_t id_max = -1;
  for (size_t i = 0; i < ids.size(); ++i) {
    if (!bytes_of[i].empty()) order.push_back(i);
    id_max = std::max(id_max, ids[i]);
  }
  // Tokens that come from another tree are in order already.
  const auto is_before = [&](size_t a, size_t b) { return bytes_of[a] < bytes_of[b]; };
  if (!std::is_sorted(order.begin(), order.end(), is_before))
    std::sort(order.begin(), order.end(), is_before);
  next_token_.assign(static_cast<size_t>(id_max + 1), -1);
  std::vector<uint32_t> path;  // nodes of the token before
  std::string_view before;
  for (const size_t i : order) {
    const std::string_view bytes = bytes_of[i];
    size_t n_shared = 0;
    while (n_shared < std::min(bytes.size(), before.size()) && bytes[n_shared] == before[n_shared])
      ++n_shared;
    for (size_t k = n_shared; k < path.size(); ++k)
      nodes_[path[k]].end = static_cast<uint32_t>(nodes_.size());
    path.resize(n_shared);
    for (size_t k = n_shared; k < bytes.size(); ++k) {
      path.push_back(static_cast<uint32_t>(nodes_.size()));
      nodes_.push_back({static_cast<uint8_t>(bytes[k]), static_cast<uint16_t>(k), 0, -1});
    }
    Node& last = nodes_[path.back()];
    next_token_[static_cast<size_t>(ids[i])] = last.first_token;
    last.first_token = ids[i];
    depth_max_ = std::max(depth_max_, bytes.size());
    before = bytes;
  }
  for (const uint32_t node : path) nodes_[node].end = static_cast<uint32_t>(nodes_.size());
}

TreePart whole_of(const TokenTree& tree) {
  return {&tree, 0, static_cast<uint32_t>(tree.nodes().size()), 0};
}

TokenVocabulary::TokenVocabulary(std::vector<std::string> bytes_of, size_t walk_nodes_max)
    : bytes_of_(std::move(bytes_of)), walk_nodes_max_(walk_nodes_max) {
  const std::vector<std::string_view> views(bytes_of_.begin(), bytes_of_.end());
  std::vector<int32_t> ids(views.size());
  std::iota(ids.begin(), ids.end(), 0);
  tree_ = std::make_shared<const TokenTree>(views, ids);
  const TokenMask none(mask_words(n_tokens()), 0);
  for (const int32_t id : ids) {
    const std::string& bytes = bytes_of_[static_cast<size_t>(id)];
    const auto n = static_cast<uint16_t>(std::min<ptrdiff_t>(
        std::count_if(bytes.begin(), bytes.end(),
                      [](char c) { return (static_cast<uint8_t>(c) & 0xC0) != 0x80; }),
        UINT16_MAX));
    n_code_points_max_ = std::max(n_code_points_max_, n);
    if (bytes.find_first_of(kStringMarks) == std::string::npos)
      allow_token(plain_.try_emplace(n, none).first->second, id);
  }
  for (const TokenTree::Node& node : tree_->nodes()) {
    const int32_t first = node.first_token;
    if (first < 0 || this->bytes_of(first).find_first_of(kStringMarks) == std::string::npos)
      continue;
    for (int32_t id = first; id >= 0; id = tree_->next_token(id)) with_string_marks_.push_back(id);
  }
  const TokenMask* shorter = nullptr;
  for (auto& [n, mask] : plain_) {
    for (size_t i = 0; shorter != nullptr && i < mask.size(); ++i) mask[i] |= (*shorter)[i];
    shorter = &mask;
  }
}

const TokenMask* TokenVocabulary::plain_up_to(uint32_t n) const {
  const auto behind = plain_.upper_bound(n);
  return behind == plain_.begin() ? nullptr : &std::prev(behind)->second;
}

std::shared_ptr<const TokenTree> TokenVocabulary::tree_of(const std::vector<int32_t>& ids,
                                                          size_t n_skipped) const {
  std::vector<std::string_view> views;
  views.reserve(ids.size());
  for (const int32_t id : ids) views.push_back(bytes_of(id).substr(n_skipped));
  return std::make_shared<const TokenTree>(views, ids, n_skipped);
}

size_t StateMask::n_bytes() const {
  size_t n = sizeof(StateMask) + inside.size() * sizeof(uint32_t);
  for (const auto& tree : {marked, exits}) n += tree ? tree->n_bytes() : 0;
  return n;
}

std::shared_ptr<const StateMask> TokenVocabulary::compute_mask(const MaskKey& key,
                                                               const ByteSet& follow) const {
  struct Reached {
    int32_t state = ByteDfa::kDead;
    bool accepts = false;   // what came so far, and something may follow
    bool has_left = false;  // on the way: the next byte may have begun what follows
  };
  auto out = std::make_shared<StateMask>();
  out->inside.assign(mask_words(n_tokens()), 0);
  const ByteDfa& dfa = *key.dfa;
  const TreePart& part = key.part;
  const TokenTree& tree = *part.tree;
  const std::vector<TokenTree::Node>& nodes = tree.nodes();
  std::vector<Reached> reached(tree.depth_max() - part.depth + 1);
  std::vector<int32_t> exits;
  size_t n_reached = 0;
  reached[0].state = key.state;
  for (size_t i = part.begin; i < part.end;) {
    const TokenTree::Node& node = nodes[i];
    const Reached from = reached[node.depth - part.depth];
    const int32_t to = dfa.step(from.state, node.byte);
    const bool has_left = from.has_left || (from.accepts && follow[node.byte]);
    if (to == ByteDfa::kDead) {
      // What was accepted on the way here may go on elsewhere.
      if (has_left) n_reached += node.end - i;
      for (size_t k = i; has_left && k < node.end; ++k)
        for (int32_t id = nodes[k].first_token; id >= 0; id = tree.next_token(id))
          exits.push_back(id);
      i = node.end;
      continue;
    }
    ++n_reached;
    reached[node.depth - part.depth + 1u] = {to, key.has_exits && dfa.accepts(to), has_left};
    for (int32_t id = node.first_token; id >= 0; id = tree.next_token(id))
      allow_token(out->inside, id);
    ++i;
  }
  out->is_small = n_reached <= walk_nodes_max_;
  if (out->is_small) {
    out->inside = TokenMask();
    return out;
  }
  if (key.has_exits) out->exits = tree_of(exits, tree.n_skipped() + part.depth);
  if (part != whole_of(*tree_)) return out;
  std::vector<int32_t> marked;
  for (const int32_t id : with_string_marks_)
    if (is_allowed(out->inside, id)) marked.push_back(id);
  out->marked = tree_of(marked, 0);
  return out;
}

std::shared_ptr<const StateMask> TokenVocabulary::lasting_mask(const MaskKey& key) const {
  const std::lock_guard lock(mutex_);
  std::shared_ptr<const StateMask>& mask = masks_[key];
  if (!mask) mask = compute_mask(key, ByteSet().set());  // whatever grammar asks
  return mask;
}

}  // namespace roost
