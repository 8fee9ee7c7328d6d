// Kernels read tensors by their addresses. A parameter that ZeRO has partitioned has no data there until ZeRO
// gathers it.
#pragma once

#include <functional>
#include <optional>
#include <type_traits>
#include <utility>

#include <ATen/core/Tensor.h>

namespace deepspeed::ops {

/// Runs `function` while `tensors` are gathered. It calls torch's operator deepspeed::<name> with the
/// arguments `tensors`, since ZeRO gathers the arguments of operators. `function` uses the tensors that it
/// has captured.
void run_with_whole(const char* name, at::TensorList tensors, const std::function<void()>& function);

/// Calls a function while all `tensors` are gathered, and returns its result.
///
/// The call is an operator of torch, around which ZeRO gathers partitioned arguments in their order. ZeRO's
/// errors, and profiles, name the operator. Tensors may be undefined. The function runs below autograd. For
/// ordinary tensors a call costs a microsecond.
template <class Function>
auto with_whole(const char* name, at::TensorList tensors, const Function& function) {
  using Result = std::invoke_result_t<Function>;
  if constexpr (std::is_void_v<Result>) {
    run_with_whole(name, tensors, [&] { function(); });
  } else {
    std::optional<Result> result;
    run_with_whole(name, tensors, [&] { result.emplace(function()); });
    return *std::move(result);
  }
}

}  // namespace deepspeed::ops
