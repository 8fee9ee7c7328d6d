// Computes the loss of a micro batch on the last stage.
#pragma once

#include <functional>
#include <memory>
#include <type_traits>
#include <utility>

#include "deepspeed/pipe/module/tensor_call.h"

namespace deepspeed::pipe {
namespace call_detail {

template <class F>
concept TakesOutputAndLabel = std::is_invocable_v<F&, const at::Tensor&, const at::Tensor&>;
template <class F>
concept TakesLists = std::is_invocable_v<F&, const Tensors&, const Tensors&>;

template <class List>
struct TwoParameters : std::false_type {};
template <class A, class B>
struct TwoParameters<ParameterList<A, B>> : std::true_type {
  using first = std::remove_cvref_t<A>;
  using second = std::remove_cvref_t<B>;
};

}  // namespace call_detail

/// Wraps loss_fn(outputs, labels), a function or a torch::nn module that returns a scalar. It takes the last
/// layer's outputs and the micro batch's labels, each as a tensor, list, tuple or struct of tensors.
class LossFunction {
 public:
  LossFunction() = default;
  LossFunction(std::nullptr_t) {}  // NOLINT: an absent loss_fn
  template <class F>
  requires(!std::is_same_v<std::remove_cvref_t<F>, LossFunction> &&
           !std::is_same_v<std::remove_cvref_t<F>, std::nullptr_t>)
      LossFunction(F function)  // NOLINT: anything that computes a loss
      : call_(as_list_function(std::move(function))) {}

  explicit operator bool() const { return call_ != nullptr; }
  at::Tensor operator()(const Tensors& outputs, const Tensors& labels) const {
    return call_(outputs, labels);
  }

 private:
  using Call = std::function<at::Tensor(const Tensors&, const Tensors&)>;

  template <class F>
  static Call as_list_function(F function) {
    if constexpr (call_detail::TakesOutputAndLabel<F>) {
      return [function = std::move(function)](const Tensors& outputs, const Tensors& labels) mutable {
        return at::Tensor(function(one(outputs, "outputs"), one(labels, "labels")));
      };
    } else if constexpr (call_detail::TakesLists<F>) {
      return [function = std::move(function)](const Tensors& outputs, const Tensors& labels) mutable {
        return at::Tensor(function(outputs, labels));
      };
    } else if constexpr (requires(const at::Tensor& tensor) { function->forward(tensor, tensor); }) {
      return as_list_function(
          [module = std::move(function)](const at::Tensor& output, const at::Tensor& label) {
            return module->forward(output, label);
          });
    } else {
      using Parameters = call_detail::TwoParameters<call_detail::ParametersOf<F>>;
      static_assert(
          Parameters::value,
          "loss_fn takes the outputs of the last layer and the labels: two tensors, lists, tuples or "
          "structs of tensors");
      return [function = std::move(function)](const Tensors& outputs, const Tensors& labels) mutable {
        return at::Tensor(function(made_of<typename Parameters::first>(outputs, "loss_fn: the outputs"),
                                   made_of<typename Parameters::second>(labels, "loss_fn: the labels")));
      };
    }
  }

  static const at::Tensor& one(const Tensors& tensors, const char* what) {
    if (tensors.size() == 1) return tensors.front();
    raise<UsageError>("loss_fn takes one tensor of ", what, ", got ", tensors.size(),
                      ": let it take a std::vector<at::Tensor>, or a struct");
  }

  Call call_;
};

}  // namespace deepspeed::pipe
