// Live engines claim their parameters, so that no second engine takes them too. Only one engine can own a
// parameter's gradient and memory.
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

  /// Claims a parameter. Throws UsageError, naming it, if another engine has claimed it. `stage`, the ZeRO
  /// stage of the claiming engine, is for such errors. The parameter must live as long as the claim.
  void add(const NamedTensor& param, int64_t stage);
  /// Throws if add() would throw, and claims nothing.
  static void check(const NamedTensor& param);
  void release() noexcept;

 private:
  std::vector<const at::TensorImpl*> held_;
};

}  // namespace deepspeed
