// Takes the tensors out of the arguments and the result of a call, and puts other tensors in their places.
#pragma once

#include <cstddef>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>

#include "deepspeed/tensor/visit_tensors.h"

namespace deepspeed::activation {

/// Represents the result of a function that returns nothing.
struct Nothing {};

template <class Result>
using ResultOf = std::conditional_t<std::is_void_v<Result>, Nothing, std::decay_t<Result>>;

/// Selects argument types that are searched for tensors; others are passed unchanged.
template <class T>
concept MayHoldTensors = std::derived_from<T, at::Tensor> || visit_detail::IsTuple<T>::value ||
    visit_detail::IsSequence<T>::value || visit_detail::IsOptional<T>::value ||
    visit_detail::IsMap<T>::value || visit_detail::IsExample<T>::value || visit_detail::RenamesExample<T> ||
    (visit_detail::HasMembersToTie<T> && !std::is_empty_v<T>);

/// Calls the visitor with each tensor of a value, or of a tuple of arguments.
template <class T, class Visitor>
void visit_parts(T& value, const Visitor& visitor) {
  if constexpr (visit_detail::IsTuple<T>::value) {
    std::apply([&](auto&... parts) { (visit_parts(parts, visitor), ...); }, value);
  } else if constexpr (MayHoldTensors<T>) {
    visit_tensors(value, visitor);
  }
}

/// Moves the tensors out of `value`, in order, leaving an undefined tensor in each place.
template <class T>
std::vector<at::Tensor> take_tensors(T& value) {
  std::vector<at::Tensor> taken;
  visit_parts(value, [&](at::Tensor& tensor) { taken.push_back(std::exchange(tensor, at::Tensor())); });
  return taken;
}

/// Puts `tensors` into the places of `value`, in the order of take_tensors(). take_tensors() must have
/// returned the same number for `value`.
template <class T>
void put_tensors(T& value, std::vector<at::Tensor> tensors) {
  size_t next = 0;
  visit_parts(value, [&](at::Tensor& tensor) { tensor = std::move(tensors[next++]); });
}

/// Calls a function with a tuple of its arguments. A void result becomes Nothing.
template <class Function, class... Args>
auto call(Function& function, std::tuple<Args...>&& args) {
  if constexpr (std::is_void_v<std::invoke_result_t<Function&, Args...>>) {
    std::apply(function, std::move(args));
    return Nothing();
  } else {
    return std::apply(function, std::move(args));
  }
}

}  // namespace deepspeed::activation
