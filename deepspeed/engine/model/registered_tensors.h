// Remembers which parameters a module and its children have registered, to notice changes.
#pragma once

#include <vector>

namespace c10 {
struct TensorImpl;
}
namespace torch::nn {
class Module;
}

namespace deepspeed {

class RegisteredTensors {
 public:
  explicit RegisteredTensors(const torch::nn::Module& module);
  /// Returns whether the parameters have changed since the last call or since construction. Costs some ten
  /// nanoseconds per module.
  bool take_change(const torch::nn::Module& module);

 private:
  std::vector<const c10::TensorImpl*> seen_;  // parameters, outer modules first
};

}  // namespace deepspeed
