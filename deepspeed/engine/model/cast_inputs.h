// Casts the floating-point tensors among the arguments of forward: DeepSpeed's fp16.auto_cast.
//
// Finds tensors in the standard containers that visit_tensors() supports, and in types that declare their own
// visit_tensors().
#pragma once

#include <array>
#include <map>
#include <optional>
#include <string>
#include <tuple>
#include <type_traits>
#include <typeinfo>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>

#include "deepspeed/base/error.h"
#include "deepspeed/tensor/visit_tensors.h"

namespace deepspeed {
namespace cast_detail {

namespace own_function {

void visit_tensors() = delete;  // hides the general one, so that only a type's own function is found

struct Visitor {
  void operator()(at::Tensor& tensor) const;
};
template <class T>
concept Exists = requires(T& value, Visitor visitor) {
  visit_tensors(value, visitor);
};

}  // namespace own_function

template <class T>
struct IsWalked
    : std::bool_constant<std::is_base_of_v<at::Tensor, T> || std::is_arithmetic_v<T> || std::is_enum_v<T> ||
                         std::is_same_v<T, std::string> || own_function::Exists<T>> {};
template <class T>
struct IsWalked<std::optional<T>> : IsWalked<T> {};
template <class T>
struct IsWalked<std::vector<T>> : IsWalked<T> {};
template <class T, size_t N>
struct IsWalked<std::array<T, N>> : IsWalked<T> {};
template <class K, class V>
struct IsWalked<std::map<K, V>> : IsWalked<V> {};
template <class A, class B>
struct IsWalked<std::pair<A, B>> : std::bool_constant<IsWalked<A>::value && IsWalked<B>::value> {};
template <class... T>
struct IsWalked<std::tuple<T...>> : std::bool_constant<(IsWalked<T>::value && ...)> {};

}  // namespace cast_detail

/// Returns `argument` with its floating-point tensors in `dtype`. Gradients flow back through the cast.
/// Throws UsageError for a type whose tensors cannot be found.
template <class T>
decltype(auto) cast_input(at::ScalarType dtype, T&& argument) {
  using Value = std::decay_t<T>;
  if constexpr (cast_detail::IsWalked<Value>::value && std::is_constructible_v<Value, T&&>) {
    Value value(std::forward<T>(argument));
    visit_tensors(value, [dtype](at::Tensor& tensor) {
      if (tensor.defined() && tensor.is_floating_point()) tensor = tensor.to(dtype);
    });
    return value;
  } else {
    raise<UsageError>("fp16.auto_cast cannot find the tensors in an argument of type ", typeid(Value).name(),
                      ": write visit_tensors(MyType&, Visitor&&) beside the type, or cast them yourself");
    return std::forward<T>(argument);
  }
}

}  // namespace deepspeed
