// Building the tree of tokens and walking it with one automaton.
#include "grammar/token_mask.h"

#include <algorithm>
#include <iterator>
#include <numeric>

namespace roost {

TokenTree::TokenTree(std::span<const std::string_view> bytes_of, std::span<const int32_t> ids) {
  std::vector<size_t> order;
  int32_t id_max = -1;
  for (size_t i = 0; i < ids.size(); ++i) {
    if (!bytes_of[i].empty()) order.push_back(i);
    id_max = std::max(id_max, ids[i]);
  }
  std::sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    return std::pair(bytes_of[a], ids[a]) < std::pair(bytes_of[b], ids[b]);
  });
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

TokenVocabulary::TokenVocabulary(std::vector<std::string> bytes_of)
    : bytes_of_(std::move(bytes_of)) {
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
    if (bytes.find_first_of("\\\"") != std::string::npos)
      with_string_marks_.push_back(id);
    else
      allow_token(plain_.try_emplace(n, none).first->second, id);
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

std::shared_ptr<const TokenTree> TokenVocabulary::tree_of(const std::vector<int32_t>& ids) const {
  std::vector<std::string_view> views;
  for (const int32_t id : ids) views.push_back(bytes_of(id));
  return std::make_shared<const TokenTree>(views, ids);
}

std::shared_ptr<const StateMask> TokenVocabulary::compute_mask(const ByteDfa& dfa,
                                                               int32_t state) const {
  auto out = std::make_shared<StateMask>();
  out->inside.assign(mask_words(n_tokens()), 0);
  const std::vector<TokenTree::Node>& nodes = tree_->nodes();
  std::vector<int32_t> states(tree_->depth_max() + 1, ByteDfa::kDead);
  std::vector<int32_t> exits;
  states[0] = state;
  for (size_t i = 0; i < nodes.size();) {
    const TokenTree::Node& node = nodes[i];
    const int32_t to = dfa.step(states[node.depth], node.byte);
    if (to == ByteDfa::kDead) {
      // What was accepted on the way here may go on elsewhere.
      bool has_accepted = false;
      for (size_t k = 1; k <= node.depth; ++k) has_accepted |= dfa.accepts(states[k]);
      for (size_t k = i; has_accepted && k < node.end; ++k)
        for (int32_t id = nodes[k].first_token; id >= 0; id = tree_->next_token(id))
          exits.push_back(id);
      i = node.end;
      continue;
    }
    states[node.depth + 1u] = to;
    for (int32_t id = node.first_token; id >= 0; id = tree_->next_token(id))
      allow_token(out->inside, id);
    ++i;
  }
  std::vector<int32_t> marked;
  for (const int32_t id : with_string_marks_)
    if (is_allowed(out->inside, id)) marked.push_back(id);
  out->marked = tree_of(marked);
  out->exits = tree_of(exits);
  return out;
}

std::shared_ptr<const StateMask> TokenVocabulary::lasting_mask(const ByteDfa& dfa,
                                                               int32_t state) const {
  const std::lock_guard lock(mutex_);
  std::shared_ptr<const StateMask>& mask = masks_[{&dfa, state}];
  if (!mask) mask = compute_mask(dfa, state);
  return mask;
}

}  // namespace roost
