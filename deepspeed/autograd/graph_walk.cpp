#include "deepspeed/autograd/graph_walk.h"

#include <algorithm>
#include <utility>

namespace deepspeed::autograd {

using torch::autograd::Edge;
using torch::autograd::edge_list;
using torch::autograd::Node;

GraphWalk::GraphWalk(const edge_list& roots, const edge_list& inputs) {
  for (const Edge& input : inputs) on_path_[input.function.get()] = true;
  for (const Edge& root : roots) visit_from(root.function.get());
}

void GraphWalk::visit_from(Node* root) {
  // Uses an explicit stack, since graphs are deeper than a thread's stack allows.
  std::vector<std::pair<Node*, size_t>> stack;
  const auto enter = [&](Node* node) {
    if (node != nullptr && on_path_.emplace(node, false).second) stack.emplace_back(node, 0);
  };
  enter(root);
  while (!stack.empty()) {
    auto& [node, next] = stack.back();
    if (next < node->num_outputs()) {
      enter(node->next_edge(next++).function.get());
    } else {
      leave(node);
      stack.pop_back();
    }
  }
}

void GraphWalk::leave(Node* node) {
  const auto& edges = node->next_edges();
  const bool leads_to_input = std::any_of(edges.begin(), edges.end(), [&](const Edge& edge) {
    return edge.is_valid() && on_path(edge.function.get());
  });
  if (!leads_to_input) return;
  on_path_[node] = true;
  inner_path_.push_back(node);
}

}  // namespace deepspeed::autograd
