// visit_tensors(value, visitor): calls the visitor with a reference to each tensor inside a value, so that
// the engine can walk any type of model output or of data set example.
//
// Known types: tensors, std::optional, std::pair, std::tuple, std::vector, std::array, std::map, types with
// `data` and `target` members (torch::data::Example), and plain aggregates of up to eight members of known
// types. For any other type write a function `visit_tensors(MyType&, Visitor&&)` beside it.
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

namespace deepspeed {
namespace visit_detail {

struct Anything {
  template <class T>
  operator T() const;
};

template <class T, size_t... I>
constexpr bool constructible_from(std::index_sequence<I...>) {
  return requires { T{((void)I, Anything{})...}; };
}

// The largest number of initializers that an aggregate takes is the number of its members.
template <class T, size_t N = 8>
constexpr size_t num_members() {
  if constexpr (N == 0) {
    return 0;
  } else if constexpr (constructible_from<T>(std::make_index_sequence<N>{})) {
    return N;
  } else {
    return num_members<T, N - 1>();
  }
}

template <class T>
concept DataAndTarget = requires(T value) {
  value.data;
  value.target;
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

template <class T, class Visitor>
void visit_members(T& value, Visitor& visitor);

}  // namespace visit_detail

template <class T, class Visitor>
void visit_tensors(T& value, Visitor&& visitor) {
  using namespace visit_detail;
  if constexpr (std::derived_from<T, at::Tensor>) {
    visitor(value);
  } else if constexpr (std::is_arithmetic_v<T> || std::is_enum_v<T> || std::is_same_v<T, std::string>) {
    // holds no tensor
  } else if constexpr (IsOptional<T>::value) {
    if (value) visit_tensors(*value, visitor);
  } else if constexpr (IsTuple<T>::value) {
    std::apply([&](auto&... parts) { (visit_tensors(parts, visitor), ...); }, value);
  } else if constexpr (IsSequence<T>::value) {
    for (auto& part : value) visit_tensors(part, visitor);
  } else if constexpr (IsMap<T>::value) {
    for (auto& [key, part] : value) visit_tensors(part, visitor);
  } else if constexpr (DataAndTarget<T>) {
    visit_tensors(value.data, visitor);
    visit_tensors(value.target, visitor);
  } else {
    static_assert(
        std::is_aggregate_v<T>,
        "deepspeed cannot find the tensors in this type: write visit_tensors(MyType&, Visitor&&) beside it");
    visit_members(value, visitor);
  }
}

namespace visit_detail {

template <class T, class Visitor>
void visit_members(T& value, Visitor& visitor) {
  constexpr size_t count = num_members<T>();
  const auto each = [&](auto&... parts) { (visit_tensors(parts, visitor), ...); };
  if constexpr (count == 1) {
    auto& [a] = value;
    each(a);
  } else if constexpr (count == 2) {
    auto& [a, b] = value;
    each(a, b);
  } else if constexpr (count == 3) {
    auto& [a, b, c] = value;
    each(a, b, c);
  } else if constexpr (count == 4) {
    auto& [a, b, c, d] = value;
    each(a, b, c, d);
  } else if constexpr (count == 5) {
    auto& [a, b, c, d, e] = value;
    each(a, b, c, d, e);
  } else if constexpr (count == 6) {
    auto& [a, b, c, d, e, f] = value;
    each(a, b, c, d, e, f);
  } else if constexpr (count == 7) {
    auto& [a, b, c, d, e, f, g] = value;
    each(a, b, c, d, e, f, g);
  } else if constexpr (count == 8) {
    auto& [a, b, c, d, e, f, g, h] = value;
    each(a, b, c, d, e, f, g, h);
  }
}

}  // namespace visit_detail
}  // namespace deepspeed
