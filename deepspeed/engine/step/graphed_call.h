// Runs a C++ forward by graphs: finds the tensors of its arguments and results.
#pragma once

#include <concepts>
#include <cstdint>
#include <ios>
#include <memory>
#include <string>
#include <tuple>
#include <type_traits>
#include <typeinfo>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>

#include "deepspeed/activation/call_parts.h"
#include "deepspeed/base/error.h"
#include "deepspeed/engine/step/forward_call.h"
#include "deepspeed/engine/step/scopes.h"
#include "deepspeed/tensor/visit_tensors.h"

namespace deepspeed {

namespace graphed_detail {

template <class T>
constexpr bool is_known();

template <class T>
struct AllKnown : std::false_type {};
template <template <class...> class Of, class... T>
struct AllKnown<Of<T...>> : std::bool_constant<(is_known<T>() && ...)> {};

/// Returns whether a type holds only tensors and values that can be written as text. Calls with different
/// texts need different graphs.
template <class T>
constexpr bool is_known() {
  using namespace visit_detail;
  using Value = std::remove_cvref_t<T>;
  if constexpr (std::derived_from<Value, at::Tensor> || kIsPlain<Value>) {
    return true;
  } else if constexpr (IsOptional<Value>::value || IsSequence<Value>::value) {
    return is_known<typename Value::value_type>();
  } else if constexpr (IsTuple<Value>::value) {
    return AllKnown<Value>::value;
  } else if constexpr (HasMembersToTie<Value>) {
    return AllKnown<decltype(tie_members(std::declval<Value&>()))>::value;
  } else {
    return false;
  }
}

/// Collects a call's tensors, and its other arguments as text.
struct Listing {
  ForwardCall call;

  void operator()(const at::Tensor& tensor) { call.tensors.push_back(tensor); }
  template <class T>
  void other(const T& value) {
    if constexpr (std::is_enum_v<T>) {
      call.rest += message(static_cast<int64_t>(value), ", ");
    } else if constexpr (std::is_floating_point_v<T>) {
      call.rest += message(std::hexfloat, value, ", ");
    } else if constexpr (std::is_same_v<T, std::string>) {
      call.rest += message(value.size(), ":", value, ", ");
    } else {
      call.rest += message(value, ", ");
    }
  }
};

}  // namespace graphed_detail

/// Returns `forward(arguments...)`, run by the scope's graphs. Throws UsageError if an argument's type cannot
/// be searched for tensors.
template <class Output, class Function, class... Arguments>
Output run_graphed(const ForwardScope& scope, const Function& forward, Arguments... arguments) {
  if constexpr (!(graphed_detail::is_known<Arguments>() && ...)) {
    raise<UsageError>(
        "cuda_graphs: forward() takes an argument of a type in which tensors cannot be found: pass ",
        "tensors, numbers, standard containers and plain structs of them, or set ",
        "cuda_graphs.enabled to false");
  } else {
    std::tuple<Arguments...> all(std::move(arguments)...);
    graphed_detail::Listing listing;
    listing.call.rest = typeid(Output(*)(Arguments...)).name();  // each overload gets its own graph and frame
    visit_tensors(all, listing);
    ForwardResult result = scope.run_graph(listing.call, [&](const std::vector<at::Tensor>& tensors) {
      activation::put_tensors(all, tensors);
      const auto frame = std::make_shared<Output>(std::apply(forward, all));
      return ForwardResult{activation::take_tensors(*frame), frame};
    });
    Output output = *static_cast<const Output*>(result.frame.get());
    activation::put_tensors(output, std::move(result.tensors));
    return output;
  }
}

}  // namespace deepspeed
