// The named parameters of a torch::nn::Module, without a need for torch's large headers.
#pragma once

#include <vector>

#include "deepspeed/tensor/named_tensor.h"

namespace torch::nn {
class Module;
}

namespace deepspeed::zero {

/// Lists the parameters of the module and its children in order of registration. Each tensor is listed once,
/// under its first name.
std::vector<NamedTensor> named_parameters(const torch::nn::Module& module);

}  // namespace deepspeed::zero
