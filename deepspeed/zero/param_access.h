// Access windows, in which partitioned parameters may be used. The engine's calls open their own. Open one
// for anything else, such as evaluation or generation on the bare module.
#pragma once

#include <memory>
#include <vector>

#include <ATen/core/Tensor.h>

#include "deepspeed/base/error.h"
#include "deepspeed/base/export.h"
#include "deepspeed/zero/prefetch/access_mode.h"

namespace torch::nn {
class Module;
}

namespace deepspeed::zero {

class GatherPool;

/// Opens a window in which operators gather the parameters they use. Collective, so all ranks open it around
/// the same code. Gathered parameters are released when it ends. Windows nest, and are open for all threads.
/// `mode` distinguishes kinds of passes. From the second pass of a kind on, the next parameters are gathered
/// ahead and those not needed soon are released.
class DEEPSPEED_API ParameterAccess {
 public:
  explicit ParameterAccess(std::shared_ptr<GatherPool> pool, AccessMode mode = AccessMode::kAny);
  /// Opens a window for all parameters that were partitioned together with one of `params`. Ordinary tensors
  /// are ignored.
  explicit ParameterAccess(const std::vector<at::Tensor>& params, AccessMode mode = AccessMode::kAny);
  ~ParameterAccess();
  ParameterAccess(const ParameterAccess&) = delete;
  ParameterAccess& operator=(const ParameterAccess&) = delete;

 private:
  std::vector<std::shared_ptr<GatherPool>> pools_;
};

/// Accepts a parameter that a module uses but does not own. DeepSpeed's programs declare such parameters;
/// here it has no effect: an operator gathers what it uses, whichever module owns it. Throws UsageError if
/// the parameter is undefined.
inline void register_external_parameter(const torch::nn::Module&, const at::Tensor& parameter) {
  if (!parameter.defined()) raise<UsageError>("got an undefined tensor, expected a parameter");
}
inline void unregister_external_parameter(const torch::nn::Module& module, const at::Tensor& parameter) {
  register_external_parameter(module, parameter);
}

}  // namespace deepspeed::zero
