// Where partitioned parameters may be used: inside of access windows. The engine's calls open their own; this
// one is for anything else, such as evaluation or generation on the bare module.
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

/// While it lives, operators on the parameters gather what they use; collective, so all ranks open it around
/// the same code. At its end what was gathered goes. Windows nest; the window is open for all threads. `mode`
/// tells passes of one kind from others: from the second one of a kind on, what comes next is gathered ahead,
/// and what is not used again soon goes.
class DEEPSPEED_API ParameterAccess {
 public:
  explicit ParameterAccess(std::shared_ptr<GatherPool> pool, AccessMode mode = AccessMode::kAny);
  /// For all parameters that were partitioned together with one of `params`; ordinary tensors need none.
  explicit ParameterAccess(const std::vector<at::Tensor>& params, AccessMode mode = AccessMode::kAny);
  ~ParameterAccess();
  ParameterAccess(const ParameterAccess&) = delete;
  ParameterAccess& operator=(const ParameterAccess&) = delete;

 private:
  std::vector<std::shared_ptr<GatherPool>> pools_;
};

/// Announces that a module uses a parameter that stands in another one, as DeepSpeed's programs do. Nothing
/// needs it here: an operator gathers what it uses, whoever's it is. Throws UsageError for a parameter that
/// is undefined.
inline void register_external_parameter(const torch::nn::Module&, const at::Tensor& parameter) {
  if (!parameter.defined()) raise<UsageError>("got an undefined tensor, expected a parameter");
}
inline void unregister_external_parameter(const torch::nn::Module& module, const at::Tensor& parameter) {
  register_external_parameter(module, parameter);
}

}  // namespace deepspeed::zero
