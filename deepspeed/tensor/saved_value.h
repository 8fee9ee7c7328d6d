// Stores C++ values on an autograd node, from its forward to its backward.
#pragma once

#include <utility>

#include <torch/csrc/autograd/custom_function.h>

namespace deepspeed {

template <class T>
struct SavedValue : torch::CustomClassHolder {
  explicit SavedValue(T given) : value(std::move(given)) {}
  T value;
};

/// Stores a value on an autograd node for saved_value(); a node has room for one.
template <class T>
void save_value(torch::autograd::AutogradContext* context, T value) {
  context->saved_data["value"] =
      c10::IValue::make_capsule(c10::make_intrusive<SavedValue<T>>(std::move(value)));
}

/// Returns the value that save_value() stored, which must have this type.
template <class T>
T saved_value(torch::autograd::AutogradContext* context) {
  return c10::static_intrusive_pointer_cast<SavedValue<T>>(context->saved_data["value"].toCapsule())->value;
}

}  // namespace deepspeed
