// Engines that are alive claim the parameters of the process, so that no second one takes them too: the
// gradients and the memory of a parameter go to one.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "deepspeed/tensor/named_tensor.h"

namespace deepspeed {

class ParamClaims {
 public:
  ParamClaims() = default;
  ParamClaims(ParamClaims&& other) noexcept : held_(std::exchange(other.held_, {})) {}
  ParamClaims& operator=(ParamClaims&& other) noexcept {
    std::swap(held_, other.held_);
    return *this;
  }
  ~ParamClaims() { release(); }

  /// Takes a parameter. Throws UsageError, naming it, where another engine has it. The parameter must live as
  /// long as the claim.
  void add(const NamedTensor& param, int64_t stage);
  /// Throws what add() would, and takes nothing.
  static void check(const NamedTensor& param);
  void release() noexcept;

 private:
  std::vector<const at::TensorImpl*> held_;
};

}  // namespace deepspeed
