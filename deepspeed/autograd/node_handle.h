// Abstracts how autograd nodes are held: by their own reference count since torch 2.15, by std::shared_ptr
// before.
#pragma once

#include <memory>
#include <type_traits>
#include <utility>

#include <torch/csrc/autograd/edge.h>
#include <torch/csrc/autograd/function.h>

namespace deepspeed::autograd {

using NodeHandle = decltype(torch::autograd::Edge::function);

template <typename Kind, typename... Arguments>
NodeHandle make_node(Arguments&&... arguments) {
  if constexpr (std::is_same_v<NodeHandle, std::shared_ptr<torch::autograd::Node>>)
    return std::make_shared<Kind>(std::forward<Arguments>(arguments)...);
  else
    return c10::make_intrusive<Kind>(std::forward<Arguments>(arguments)...);
}

/// Returns a handle that does not keep the node alive. torch holds the node that accumulates a parameter's
/// gradient this way.
template <typename Kind>
std::weak_ptr<Kind> weak(const std::shared_ptr<Kind>& node) {
  return node;
}
template <typename Kind>
c10::weak_intrusive_ptr<Kind> weak(const c10::intrusive_ptr<Kind>& node) {
  return c10::weak_intrusive_ptr<Kind>(node);
}

}  // namespace deepspeed::autograd
