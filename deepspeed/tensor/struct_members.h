// tie_members(value) returns the members of a plain aggregate as a tuple of references. C++20 has no loop
// over them.
#pragma once

#include <cstddef>
#include <tuple>
#include <type_traits>
#include <utility>

namespace deepspeed::visit_detail {

inline constexpr size_t kMostMembers = 16;

struct Anything {
  template <class T>
  operator T() const;
};

template <class Struct>
struct AnyBaseOf {
  template <class T>
  requires(std::is_base_of_v<T, Struct> && !std::is_same_v<T, Struct>) operator T() const;
};

template <class T, size_t... I>
constexpr bool constructible_from(std::index_sequence<I...>) {
  return requires { T{((void)I, Anything{})...}; };
}

template <class T, size_t N = kMostMembers + 1>
constexpr size_t count_members() {
  if constexpr (N == 0 || constructible_from<T>(std::make_index_sequence<N>{})) {
    return N;
  } else {
    return count_members<T, N - 1>();
  }
}

/// Counts an aggregate's members, as the largest number of initializers that it accepts. kMostMembers + 1
/// means any larger number.
template <class T>
inline constexpr size_t kNumMembers = count_members<T>();

template <class T>
inline constexpr bool kHasBase = requires {
  T{AnyBaseOf<T>{}};
};

template <class T>
concept HasMembersToTie = std::is_aggregate_v<T> && !kHasBase<T> && kNumMembers<T> <= kMostMembers &&
                          (kNumMembers<T> > 0 || std::is_empty_v<T>);

template <HasMembersToTie T>
auto tie_members(T& value) {
  constexpr size_t count = kNumMembers<T>;
  if constexpr (count == 0) {
    return std::tuple<>();
  } else if constexpr (count == 1) {
    auto& [a] = value;
    return std::tie(a);
  } else if constexpr (count == 2) {
    auto& [a, b] = value;
    return std::tie(a, b);
  } else if constexpr (count == 3) {
    auto& [a, b, c] = value;
    return std::tie(a, b, c);
  } else if constexpr (count == 4) {
    auto& [a, b, c, d] = value;
    return std::tie(a, b, c, d);
  } else if constexpr (count == 5) {
    auto& [a, b, c, d, e] = value;
    return std::tie(a, b, c, d, e);
  } else if constexpr (count == 6) {
    auto& [a, b, c, d, e, f] = value;
    return std::tie(a, b, c, d, e, f);
  } else if constexpr (count == 7) {
    auto& [a, b, c, d, e, f, g] = value;
    return std::tie(a, b, c, d, e, f, g);
  } else if constexpr (count == 8) {
    auto& [a, b, c, d, e, f, g, h] = value;
    return std::tie(a, b, c, d, e, f, g, h);
  } else if constexpr (count == 9) {
    auto& [a, b, c, d, e, f, g, h, i] = value;
    return std::tie(a, b, c, d, e, f, g, h, i);
  } else if constexpr (count == 10) {
    auto& [a, b, c, d, e, f, g, h, i, j] = value;
    return std::tie(a, b, c, d, e, f, g, h, i, j);
  } else if constexpr (count == 11) {
    auto& [a, b, c, d, e, f, g, h, i, j, k] = value;
    return std::tie(a, b, c, d, e, f, g, h, i, j, k);
  } else if constexpr (count == 12) {
    auto& [a, b, c, d, e, f, g, h, i, j, k, l] = value;
    return std::tie(a, b, c, d, e, f, g, h, i, j, k, l);
  } else if constexpr (count == 13) {
    auto& [a, b, c, d, e, f, g, h, i, j, k, l, m] = value;
    return std::tie(a, b, c, d, e, f, g, h, i, j, k, l, m);
  } else if constexpr (count == 14) {
    auto& [a, b, c, d, e, f, g, h, i, j, k, l, m, n] = value;
    return std::tie(a, b, c, d, e, f, g, h, i, j, k, l, m, n);
  } else if constexpr (count == 15) {
    auto& [a, b, c, d, e, f, g, h, i, j, k, l, m, n, o] = value;
    return std::tie(a, b, c, d, e, f, g, h, i, j, k, l, m, n, o);
  } else if constexpr (count == 16) {
    auto& [a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p] = value;
    return std::tie(a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p);
  }
}

}  // namespace deepspeed::visit_detail
