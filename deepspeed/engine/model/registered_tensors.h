// This remembers which parameters a module and its children have registered, to notice that there are others.
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
  /// Says whether the parameters are others than at the last call, or at construction. Costs some ten
  /// nanoseconds a module.
  bool take_change(const torch::nn::Module& module);

 private:
  std::vector<const c10::TensorImpl*> seen_;  // from the outside in
};

}  // namespace deepspeed
