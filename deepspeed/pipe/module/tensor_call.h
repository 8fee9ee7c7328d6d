// Calls anything that takes and returns tensors with a list of tensors. A callable may take up to eight
// single tensors, one list of tensors, or one struct or tuple of them. It may return any type in which
// visit_tensors() finds tensors.
#pragma once

#include <concepts>
#include <cstddef>
#include <string>
#include <type_traits>
#include <utility>

#include <c10/util/Type.h>

#include "deepspeed/base/error.h"
#include "deepspeed/pipe/module/layer.h"
#include "deepspeed/tensor/visit_tensors.h"

namespace deepspeed::pipe {
namespace call_detail {

inline constexpr size_t kMaxTensors = 8;

/// Lists parameter types. Signature<F>::list is such a list, or void if F is a template or has overloads.
template <class... Parameters>
struct ParameterList {};

template <class F>
struct Signature {
  using list = void;
};
template <class R, class... A>
struct Signature<R (*)(A...)> {
  using list = ParameterList<A...>;
};
template <class R, class C, class... A>
struct Signature<R (C::*)(A...)> {
  using list = ParameterList<A...>;
};
template <class R, class C, class... A>
struct Signature<R (C::*)(A...) const> {
  using list = ParameterList<A...>;
};
template <class F>
requires requires { &F::operator(); }
struct Signature<F> : Signature<decltype(&F::operator())> {};

template <class F>
using ParametersOf = typename Signature<F>::list;

/// Names the type of a callable's only parameter, without const and reference; otherwise void.
template <class List>
struct OnlyParameter {
  using type = void;
};
template <class P>
struct OnlyParameter<ParameterList<P>> {
  using type = std::remove_cvref_t<P>;
};

template <size_t>
using TensorArgument = const at::Tensor&;

template <class F, size_t... I>
constexpr bool takes_tensors(std::index_sequence<I...>) {
  return std::is_invocable_v<F&, TensorArgument<I>...>;
}

template <class F, size_t... I>
Tensors call_with(F& function, const Tensors& inputs, std::index_sequence<I...>);

}  // namespace call_detail

/// Returns the tensors in a value, in the order of visit_tensors().
template <class T>
Tensors tensors_in(T& value) {
  Tensors found;
  visit_tensors(value, [&](at::Tensor& tensor) { found.push_back(tensor); });
  return found;
}
inline Tensors tensors_in(Tensors& value) { return std::move(value); }

/// Makes a value of type `T` from these tensors. `T` is a tensor, list, tuple or struct of tensors. Throws
/// UsageError, beginning with `what`, if their number does not fit.
template <class T>
T made_of(const Tensors& tensors, const std::string& what) {
  if constexpr (std::is_convertible_v<const Tensors&, T>) {
    return tensors;
  } else if constexpr (std::is_default_constructible_v<T>) {
    T value;
    size_t used = 0;
    visit_tensors(value, [&](at::Tensor& tensor) {
      if (used < tensors.size()) tensor = tensors[used];
      ++used;
    });
    if (used == tensors.size()) return value;
    raise<UsageError>(what, " takes ", used, " tensors, got ", tensors.size());
  } else {
    raise<UsageError>(what, " takes a ", c10::demangle_type<T>(),
                      ", which has no default constructor: take tensors, or a struct of them");
  }
}

template <class F, size_t... I>
Tensors call_detail::call_with(F& function, const Tensors& inputs, std::index_sequence<I...>) {
  static_assert(!std::is_void_v<decltype(function(inputs[I]...))>, "a layer returns its outputs");
  auto output = function(inputs[I]...);
  return tensors_in(output);
}

/// Calls `function` with tensors and returns those in its result. `Parameters`: its list of parameter types,
/// if known. Throws UsageError, beginning with `what` ("layer 3 (MyBlock)"), if their number does not fit.
template <class Parameters, class F>
Tensors call_with_tensors(F& function, const Tensors& inputs, const std::string& what) {
  using Only = typename call_detail::OnlyParameter<Parameters>::type;
  constexpr bool takes_one_value = !std::is_void_v<Only> && !std::derived_from<Only, at::Tensor> &&
                                   !std::is_same_v<Only, std::optional<at::Tensor>>;
  if constexpr (takes_one_value) {
    auto output = function(made_of<Only>(inputs, what));
    return tensors_in(output);
  } else {
    Tensors outputs;
    const auto try_with = [&]<size_t N>(std::integral_constant<size_t, N>) {
      using Indices = std::make_index_sequence<N>;
      if constexpr (call_detail::takes_tensors<F>(Indices{})) {
        if (inputs.size() != N) return false;
        outputs = call_detail::call_with(function, inputs, Indices{});
        return true;
      } else {
        return false;
      }
    };
    const bool was_called = [&]<size_t... N>(std::index_sequence<N...>) {
      return (try_with(std::integral_constant<size_t, N + 1>{}) || ...);
    }
    (std::make_index_sequence<call_detail::kMaxTensors>{});
    if (was_called) return outputs;
    raise<UsageError>(what, " does not take ", inputs.size(), inputs.size() == 1 ? " tensor" : " tensors");
  }
}

}  // namespace deepspeed::pipe
