// deepspeed::checkpointing::checkpoint(): runs any callable without keeping its activations.
#pragma once

#include <array>
#include <map>
#include <memory>
#include <optional>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "deepspeed/activation/checkpoint_function.h"
#include "deepspeed/activation/configure.h"
#include "deepspeed/activation/recompute.h"
#include "deepspeed/tensor/visit_tensors.h"

namespace deepspeed::checkpointing {
namespace checkpoint_detail {

template <class T>
struct HoldsTensors : std::is_base_of<at::Tensor, T> {};
template <class T>
struct HoldsTensors<std::optional<T>> : HoldsTensors<T> {};
template <class T>
struct HoldsTensors<std::vector<T>> : HoldsTensors<T> {};
template <class T, size_t N>
struct HoldsTensors<std::array<T, N>> : HoldsTensors<T> {};
template <class K, class V>
struct HoldsTensors<std::map<K, V>> : HoldsTensors<V> {};
template <class A, class B>
struct HoldsTensors<std::pair<A, B>> : std::bool_constant<HoldsTensors<A>::value && HoldsTensors<B>::value> {
};
template <class... T>
struct HoldsTensors<std::tuple<T...>> : std::bool_constant<(HoldsTensors<T>::value && ...)> {};

/// Calls the visitor with each tensor of an argument; other arguments pass as they are.
template <class T, class Visitor>
void visit_argument(T& argument, const Visitor& visitor) {
  if constexpr (HoldsTensors<T>::value) visit_tensors(argument, visitor);
}

using Recompute = Tensors (*)(const TensorFunction&, const Tensors&);

template <class F, class... Args>
auto checkpoint_by(Recompute recompute_list, F function, Args... args) {
  using Result = std::decay_t<std::invoke_result_t<F&, Args&...>>;
  static_assert(!std::is_void_v<Result>, "checkpoint() runs a function that returns its outputs");
  const auto arguments = std::make_shared<std::tuple<Args...>>(std::move(args)...);
  Tensors inputs;
  const auto each_argument = [](std::tuple<Args...>& all, const auto& visitor) {
    std::apply([&](auto&... argument) { (visit_argument(argument, visitor), ...); }, all);
  };
  // The region alone holds the inputs meanwhile.
  each_argument(*arguments,
                [&](at::Tensor& tensor) { inputs.push_back(std::exchange(tensor, at::Tensor())); });
  std::optional<Result> first;
  bool is_first = true;
  const auto run = [arguments, function, each_argument, &first, &is_first,
                    first_run = std::make_shared<bool>(true)](const Tensors& tensors) mutable {
    std::tuple<Args...> filled = *arguments;
    size_t next = 0;
    each_argument(filled, [&](at::Tensor& tensor) { tensor = tensors[next++]; });
    Result result = std::apply(function, filled);
    Tensors outputs;
    visit_tensors(result, [&](at::Tensor& tensor) { outputs.push_back(tensor); });
    // Only the first run happens while the caller's variables live.
    if (std::exchange(*first_run, false) && is_first) first.emplace(std::move(result));
    return outputs;
  };
  const Tensors outputs = recompute_list(run, inputs);
  is_first = false;
  size_t next = 0;
  visit_tensors(*first, [&](at::Tensor& tensor) { tensor = outputs[next++]; });
  return std::move(*first);
}

inline Tensors without_reentering(const TensorFunction& function, const Tensors& inputs) {
  return recompute(function, inputs, {.keeping = current_keeping()});
}
inline Tensors keeping_results(const TensorFunction& function, const Tensors& inputs) {
  return recompute(function, inputs, {.keeping = current_keeping(), .keeps_results = true});
}

}  // namespace checkpoint_detail

/// Calls function(args...) and returns what it returns: a tensor, or a tuple, a list or a struct of tensors
/// and other values. Tensors that are arguments, or in lists and tuples among them, are kept as configure()
/// says; other arguments are copied. Everything else that backward needs is computed again, by another call
/// of a copy of `function`, which must compute the same: random numbers, autocast and parameters are as they
/// were. A function must not capture tensors that it takes. Gradients are those of a plain call bit for bit.
template <class F, class... Args>
auto checkpoint(F function, Args... args) {
  return checkpoint_detail::checkpoint_by(&checkpoint_detail::without_reentering, std::move(function),
                                          std::move(args)...);
}

/// The same, keeping the results of products of matrices, convolutions and attention, which are most of the
/// work and not most of the memory.
template <class F, class... Args>
auto checkpoint_keeping_products(F function, Args... args) {
  return checkpoint_detail::checkpoint_by(&checkpoint_detail::keeping_results, std::move(function),
                                          std::move(args)...);
}

/// The same by a backward inside of the backward (CheckpointFunction): at least one argument needs a
/// gradient.
template <class F, class... Args>
auto reentrant_checkpoint(F function, Args... args) {
  return checkpoint_detail::checkpoint_by(&CheckpointFunction::apply, std::move(function),
                                          std::move(args)...);
}

}  // namespace deepspeed::checkpointing
