// Values of C++ that a node of autograd keeps from its forward for its backward.
#pragma once

#include <utility>

#include <torch/csrc/autograd/custom_function.h>

namespace deepspeed {

template <class T>
struct SavedValue : torch::CustomClassHolder {
  explicit SavedValue(T given) : value(std::move(given)) {}
  T value;
};

/// Keeps a value on a node of autograd; a node has one.
template <class T>
void save_value(torch::autograd::AutogradContext* context, T value) {
  context->saved_data["value"] =
      c10::IValue::make_capsule(c10::make_intrusive<SavedValue<T>>(std::move(value)));
}

/// Returns the value that save_value() kept, which must be of this type.
template <class T>
T saved_value(torch::autograd::AutogradContext* context) {
  return c10::static_intrusive_pointer_cast<SavedValue<T>>(context->saved_data["value"].toCapsule())->value;
}

}  // namespace deepspeed
