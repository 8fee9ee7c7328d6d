// What a program may pass as its optimizer: an object, or a callable that makes one of the parameters.
#pragma once

#include <concepts>
#include <functional>
#include <memory>
#include <type_traits>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>

#include "deepspeed/base/export.h"

namespace torch::optim {
class Optimizer;
}

namespace deepspeed {

/// A shared_ptr to any torch::optim::Optimizer, or a callable that takes the parameters, one
/// std::vector<at::Tensor>, and returns such an object as a shared_ptr or unique_ptr.
class DEEPSPEED_API OptimizerSource {
 public:
  using Pointer = std::shared_ptr<torch::optim::Optimizer>;

  OptimizerSource(std::nullptr_t = nullptr) {}

  template <class T>
  requires std::is_convertible_v<std::shared_ptr<T>, Pointer> OptimizerSource(std::shared_ptr<T> optimizer)
      : ready_(std::move(optimizer)) {}

  template <class F>
  requires std::invocable<F&, std::vector<at::Tensor>> OptimizerSource(F make)
      : make_([make = std::move(make)](std::vector<at::Tensor> parameters) -> Pointer {
          return make(std::move(parameters));
        }) {}

  explicit operator bool() const { return ready_ != nullptr || make_ != nullptr; }
  bool is_callable() const { return make_ != nullptr; }
  /// The object, or what the callable makes of `parameters`. Throws UsageError where it makes none.
  Pointer get(const std::vector<at::Tensor>& parameters) const;

 private:
  Pointer ready_;
  std::function<Pointer(std::vector<at::Tensor>)> make_;
};

}  // namespace deepspeed
