// visit_tensors(value, visitor) calls the visitor with a reference to each tensor inside a value. The engine
// uses it to walk any type of model output or data set example.
//
// Supported types: tensors, std::optional, std::pair, std::tuple, std::vector, std::array, std::map,
// torch::data::Example, and plain aggregates of up to 16 members of supported types. For any other type write
// a function `visit_tensors(MyType&, Visitor&&)` next to it.
//
// A visitor with a function other(const T&) also gets everything else, in order: numbers, enums, texts, and
// the number of elements of an optional, a vector or a map.
#pragma once

#include <array>
#include <concepts>
#include <map>
#include <optional>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>

#include "deepspeed/tensor/struct_members.h"

namespace torch::data {
template <class Data, class Target>
struct Example;
}

namespace deepspeed {
namespace visit_detail {

template <class T>
inline constexpr bool kIsPlain =
    std::is_arithmetic_v<T> || std::is_enum_v<T> || std::is_same_v<T, std::string>;

template <class T>
struct IsExample : std::false_type {};
template <class Data, class Target>
struct IsExample<torch::data::Example<Data, Target>> : std::true_type {};

template <class Data, class Target>
torch::data::Example<Data, Target> example_of(const torch::data::Example<Data, Target>&);

/// Selects classes derived from torch's Example that add no member.
template <class T>
concept RenamesExample = requires(const T& value) {
  requires sizeof(example_of(value)) == sizeof(T);
};

template <class T>
struct IsTuple : std::false_type {};
template <class... T>
struct IsTuple<std::tuple<T...>> : std::true_type {};
template <class A, class B>
struct IsTuple<std::pair<A, B>> : std::true_type {};
template <class T>
struct IsSequence : std::false_type {};
template <class T>
struct IsSequence<std::vector<T>> : std::true_type {};
template <class T, size_t N>
struct IsSequence<std::array<T, N>> : std::true_type {};
template <class T>
struct IsOptional : std::false_type {};
template <class T>
struct IsOptional<std::optional<T>> : std::true_type {};
template <class T>
struct IsMap : std::false_type {};
template <class K, class V>
struct IsMap<std::map<K, V>> : std::true_type {};

/// Passes `value`, which is no tensor, to the visitor's other(), if the visitor has one.
template <class T, class Visitor>
void tell(const T& value, Visitor& visitor) {
  if constexpr (requires { visitor.other(value); }) visitor.other(value);
}

}  // namespace visit_detail

template <class T, class Visitor>
void visit_tensors(T& value, Visitor&& visitor) {
  using namespace visit_detail;
  const auto each = [&](auto&... parts) { (visit_tensors(parts, visitor), ...); };
  if constexpr (std::derived_from<T, at::Tensor>) {
    visitor(value);
  } else if constexpr (kIsPlain<T>) {
    tell(value, visitor);
  } else if constexpr (IsOptional<T>::value) {
    tell(value.has_value(), visitor);
    if (value) visit_tensors(*value, visitor);
  } else if constexpr (IsTuple<T>::value) {
    std::apply(each, value);
  } else if constexpr (IsSequence<T>::value) {
    tell(value.size(), visitor);
    for (auto& part : value) visit_tensors(part, visitor);
  } else if constexpr (IsMap<T>::value) {
    tell(value.size(), visitor);
    for (auto& [key, part] : value) {
      if constexpr (kIsPlain<typename T::key_type>) tell(key, visitor);
      visit_tensors(part, visitor);
    }
  } else if constexpr (IsExample<T>::value) {
    visit_tensors(value.data, visitor);
    if constexpr (requires { value.target; }) visit_tensors(value.target, visitor);
  } else if constexpr (RenamesExample<T>) {
    visit_tensors(static_cast<decltype(example_of(value))&>(value), visitor);
  } else {
    static_assert(HasMembersToTie<T>,
                  "deepspeed cannot find the tensors in this type, which is no plain struct of at most 16 "
                  "members without "
                  "a base class and without references: write visit_tensors(MyType&, Visitor&&) beside it");
    if constexpr (HasMembersToTie<T>) std::apply(each, tie_members(value));
  }
}

}  // namespace deepspeed
