// 1. GraphWalk finds the nodes from which an input can be reached: the path.
// 2. GraphEdits prepares them. If a node has an edge that leaves the path and computes its gradients
//    separately (splitting_nodes()), it records its incoming gradients. For any other node the leaving edge
//    is redirected to a sink, whose gradient is captured. Such a node runs once, since it may recompute or
//    accumulate on its own. Nodes that the second half does not need free their saved tensors right after
//    they ran.
// 3. The engine runs towards the inputs and the sinks. It asks no node for an unneeded gradient.
// 4. In the splitting nodes the edges along the path are cut, and a WeightHalf calls each of these nodes
//    again.
// 5. WeightBackward::run() starts at the halves, at the original targets of the redirected edges, and at the
//    roots off the path. The accumulating nodes run there, once each.
#include "deepspeed/autograd/split_backward.h"

#include <algorithm>
#include <deque>
#include <iterator>
#include <optional>
#include <string>
#include <utility>

#include <ATen/ops/zeros.h>
#include <c10/util/ThreadLocalDebugInfo.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/variable.h>

#include "deepspeed/autograd/graph_walk.h"
#include "deepspeed/autograd/node_handle.h"
#include "deepspeed/base/error.h"
#include "deepspeed/device/streams/side_stream.h"

namespace deepspeed::autograd {
using torch::autograd::Edge;
using torch::autograd::edge_list;
using torch::autograd::Node;
using torch::autograd::variable_list;

class WeightBackward::Parts {
 public:
  void add(Edge root, at::Tensor gradient) {
    roots.push_back(std::move(root));
    gradients.push_back(std::move(gradient));
  }
  void append(const Parts& more) {
    roots.insert(roots.end(), more.roots.begin(), more.roots.end());
    gradients.insert(gradients.end(), more.gradients.begin(), more.gradients.end());
    num_halves += more.num_halves;
  }

  edge_list roots;
  variable_list gradients;
  size_t num_halves = 0;
};

namespace {

/// Records the gradients that a node receives, after its other hooks have run.
class KeepGradients : public torch::autograd::FunctionPreHook {
 public:
  explicit KeepGradients(variable_list& kept) : kept_(kept) {}
  variable_list operator()(const variable_list& gradients) override {
    kept_ = gradients;
    return gradients;
  }

 private:
  variable_list& kept_;
};

/// Guards a node whose edges were cut: another backward through it would lose gradients.
class RefuseBackward : public torch::autograd::FunctionPreHook {
 public:
  variable_list operator()(const variable_list&) override {
    raise<UsageError>(
        "a backward came to a graph that backward_inputs() has used up: give it all outputs of a forward at "
        "once");
  }
};

/// Frees a node's saved tensors after it ran, like a backward without retain_graph.
class FreeSaved : public torch::autograd::FunctionPostHook {
 public:
  explicit FreeSaved(Node* node) : node_(node) {}
  variable_list operator()(const variable_list& outputs, const variable_list&) override {
    node_->release_variables();
    return outputs;
  }

 private:
  Node* node_;
};

/// Replaces the target of an edge, so that the edge's gradient can be captured.
class Sink : public Node {
 public:
  explicit Sink(const Edge& replaced) {
    const auto& input = replaced.function->input_metadata(replaced.input_nr);
    // The gradient must arrive on the stream of the node that receives it in the second half.
    const device::SideStream::Scope stream(replaced.function->stream());
    add_input_metadata(input.options(), input.shape_as_dim_vector(), input.is_tensor_subclass(),
                       input.is_nested_tensor(), input.grad_dtype());
  }
  variable_list apply(variable_list&&) override { return {}; }
  std::string name() const override { return "DeepSpeedSink"; }
};

/// Runs a node again for its remaining gradients, without its hooks, which have already run.
class WeightHalf : public Node {
 public:
  /// node: its edges along the path are cut. mark: a dummy gradient on the node's device.
  WeightHalf(NodeHandle node, variable_list gradients, const at::Tensor& mark)
      : Node(node->sequence_nr(), edge_list(node->next_edges())),
        node_(std::move(node)),
        gradients_(std::move(gradients)) {
    const device::SideStream::Scope stream(node_->stream());
    add_input_metadata(mark);
  }
  variable_list apply(variable_list&&) override {
    auto results = (*node_)(std::move(gradients_));
    node_->release_variables();
    node_.reset();
    gradients_.clear();
    return results;
  }
  std::string name() const override { return "DeepSpeedWeightHalf"; }

 private:
  NodeHandle node_;
  variable_list gradients_;
};

/// Edits a graph for its first half. The destructor always removes the hooks and restores the edges.
class GraphEdits {
 public:
  struct SplitNode {
    Node* node;
    variable_list gradients;

    /// Returns any one gradient that the node received; null if it received none.
    const at::Tensor* a_gradient() const {
      const auto found = std::find_if(gradients.begin(), gradients.end(),
                                      [](const at::Tensor& gradient) { return gradient.defined(); });
      return found == gradients.end() ? nullptr : &*found;
    }
  };

  GraphEdits() = default;
  ~GraphEdits() {
    for (const auto& [slot, edge] : moved_) *slot = edge;
    for (const auto& [node, hook] : pre_hooks_) {
      std::erase_if(node->pre_hooks(), [&](const auto& other) { return other.get() == hook; });
    }
    for (const auto& [node, hook] : post_hooks_) {
      std::erase_if(node->post_hooks(), [&](const auto& other) { return other.get() == hook; });
    }
  }
  GraphEdits(const GraphEdits&) = delete;
  GraphEdits& operator=(const GraphEdits&) = delete;

  void prepare(const GraphWalk& walk) {
    for (Node* node : walk.inner_path()) edit(*node, walk);
  }
  const edge_list& sinks() const { return sinks_; }
  /// Returns the original target of the index-th sink's edge.
  const Edge& behind_sink(size_t index) const { return moved_[index].second; }
  std::deque<SplitNode>& split_nodes() { return split_nodes_; }

 private:
  void edit(Node& node, const GraphWalk& walk) {
    const auto& edges = node.next_edges();
    const bool leaves =
        std::any_of(edges.begin(), edges.end(), [&](const Edge& edge) { return walk.leaves_path(edge); });
    if (leaves && splitting_nodes().contains(node.name())) return keep_gradients(node);
    for (Edge& edge : node.next_edges()) {
      if (walk.leaves_path(edge)) lead_into_sink(edge);
    }
    free_when_done(node);
  }
  void keep_gradients(Node& node) {
    split_nodes_.push_back({&node, {}});
    auto hook = std::make_unique<KeepGradients>(split_nodes_.back().gradients);
    pre_hooks_.emplace_back(&node, hook.get());
    node.add_pre_hook(std::move(hook));
  }
  void lead_into_sink(Edge& edge) {
    const Edge to_sink(make_node<Sink>(edge), 0);
    sinks_.push_back(to_sink);
    moved_.emplace_back(&edge, edge);
    edge = to_sink;
  }
  void free_when_done(Node& node) {
    auto hook = std::make_unique<FreeSaved>(&node);
    post_hooks_.emplace_back(&node, hook.get());
    node.add_post_hook(std::move(hook));
  }

  std::deque<SplitNode> split_nodes_;  // hooks hold references to its elements
  edge_list sinks_;
  std::vector<std::pair<Edge*, Edge>> moved_;  // one per sink
  std::vector<std::pair<Node*, torch::autograd::FunctionPreHook*>> pre_hooks_;
  std::vector<std::pair<Node*, torch::autograd::FunctionPostHook*>> post_hooks_;
};

/// Holds a backward's roots with their gradients, and the edges to inputs that need one.
struct Ends {
  edge_list roots;
  variable_list gradients;
  edge_list inputs;
  std::vector<size_t> places;  // positions of these inputs in the caller's list
};

Ends find_ends(const variable_list& outputs, const variable_list& output_grads, const variable_list& inputs) {
  if (outputs.size() != output_grads.size()) {
    raise<UsageError>("there are ", outputs.size(), " outputs and ", output_grads.size(),
                      " gradients, expected one an output");
  }
  Ends ends;
  for (size_t i = 0; i < outputs.size(); ++i) {
    if (!outputs[i].requires_grad() || !output_grads[i].defined()) continue;
    ends.roots.push_back(torch::autograd::impl::gradient_edge(outputs[i]));
    ends.gradients.push_back(output_grads[i]);
  }
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (!inputs[i].defined() || !inputs[i].requires_grad()) continue;
    if (!inputs[i].is_leaf()) {
      raise<UsageError>("input ", i, " of sizes ", inputs[i].sizes(),
                        " is a result of operators, expected a leaf: detach().requires_grad_() makes one");
    }
    ends.inputs.push_back(torch::autograd::impl::gradient_edge(inputs[i]));
    ends.places.push_back(i);
  }
  return ends;
}

/// Tells nodes that run their own backward where to put the second half. Autograd passes this object to its
/// device threads. Otherwise only inference uses debug info of this kind.
struct SplitInfo : c10::DebugInfoBase {
  explicit SplitInfo(WeightBackward* given) : later(given) {}
  WeightBackward* later;
};
c10::DebugInfoKind split_info_kind() { return c10::DebugInfoKind::INFERENCE_CONTEXT; }

/// Runs the engine from the roots. Returns the gradients of ends.inputs, followed by those of edits.sinks().
variable_list run_towards_inputs(const Ends& ends, const GraphEdits& edits, WeightBackward& later) {
  edge_list wanted = ends.inputs;
  wanted.insert(wanted.end(), edits.sinks().begin(), edits.sinks().end());
  if (wanted.empty() || ends.roots.empty()) return variable_list(wanted.size());
  const c10::DebugInfoGuard guard(split_info_kind(), std::make_shared<SplitInfo>(&later));
  return torch::autograd::Engine::get_default_engine().execute(ends.roots, ends.gradients,
                                                               /*keep_graph=*/true,
                                                               /*create_graph=*/false,
                                                               /*accumulate_grad=*/false, wanted);
}

void cut_path(Node& node, const GraphWalk& walk) {
  for (Edge& edge : node.next_edges()) {
    if (edge.is_valid() && !walk.leaves_path(edge)) edge = Edge();
  }
  node.add_pre_hook(std::make_unique<RefuseBackward>());
}

void add_halves(std::deque<GraphEdits::SplitNode>& nodes, const GraphWalk& walk,
                WeightBackward::Parts& parts) {
  std::erase_if(nodes, [](const auto& split) { return split.a_gradient() == nullptr; });
  // A cut frees nodes, so handles to all of them are taken first.
  std::vector<NodeHandle> handles;
  for (const auto& split : nodes) handles.push_back(split.node->getptr());
  for (const auto& handle : handles) cut_path(*handle, walk);
  for (size_t i = 0; i < handles.size(); ++i) {
    const at::Tensor mark = at::zeros({}, nodes[i].a_gradient()->options());
    parts.add(Edge(make_node<WeightHalf>(handles[i], std::move(nodes[i].gradients), mark), 0), mark);
    ++parts.num_halves;
  }
}

}  // namespace

WeightBackward::WeightBackward() : parts_(std::make_unique<Parts>()) {}
WeightBackward::~WeightBackward() = default;
WeightBackward::WeightBackward(WeightBackward&& other) noexcept : parts_(std::move(other.parts_)) {
  other.parts_ = std::make_unique<Parts>();
}
WeightBackward& WeightBackward::operator=(WeightBackward&& other) noexcept {
  std::swap(parts_, other.parts_);
  return *this;
}

void WeightBackward::run() {
  const Parts taken = std::exchange(*parts_, Parts());
  if (taken.roots.empty()) return;
  torch::autograd::Engine::get_default_engine().execute(taken.roots, taken.gradients, /*keep_graph=*/false,
                                                        /*create_graph=*/false, /*accumulate_grad=*/true);
}

bool WeightBackward::empty() const { return parts_->roots.empty(); }
size_t WeightBackward::num_halves() const { return parts_->num_halves; }

std::vector<at::Tensor> backward_inputs(const std::vector<at::Tensor>& outputs,
                                        const std::vector<at::Tensor>& output_grads,
                                        const std::vector<at::Tensor>& inputs, WeightBackward& later) {
  const Ends ends = find_ends(outputs, output_grads, inputs);
  const GraphWalk walk(ends.roots, ends.inputs);
  WeightBackward::Parts parts;
  std::deque<GraphEdits::SplitNode> split_nodes;
  std::vector<at::Tensor> results(inputs.size());
  WeightBackward nested;
  {
    GraphEdits edits;
    edits.prepare(walk);
    const variable_list found = run_towards_inputs(ends, edits, nested);
    for (size_t i = 0; i < ends.places.size(); ++i) results[ends.places[i]] = found[i];
    for (size_t i = ends.places.size(); i < found.size(); ++i) {
      if (found[i].defined()) parts.add(edits.behind_sink(i - ends.places.size()), found[i]);
    }
    split_nodes = std::move(edits.split_nodes());
  }
  for (size_t i = 0; i < ends.roots.size(); ++i) {
    if (!walk.on_path(ends.roots[i].function.get())) parts.add(ends.roots[i], ends.gradients[i]);
  }
  add_halves(split_nodes, walk, parts);
  later.parts_->append(*nested.parts_);
  later.parts_->append(parts);
  return results;
}

WeightBackward* current_weight_backward() {
  auto* info = dynamic_cast<SplitInfo*>(c10::ThreadLocalDebugInfo::get(split_info_kind()));
  return info == nullptr ? nullptr : info->later;
}

const std::unordered_set<std::string>& splitting_nodes() {
  static const auto& names = *new std::unordered_set<std::string>{
      "MmBackward0", "AddmmBackward0", "BmmBackward0", "BaddbmmBackward0", "ConvolutionBackward0",
  };
  return names;
}

}  // namespace deepspeed::autograd
