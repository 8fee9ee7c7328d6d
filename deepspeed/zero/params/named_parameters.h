// The parameters of a torch::nn::Module with their names, for those who must not parse its headers.
#pragma once

#include <vector>

#include "deepspeed/tensor/named_tensor.h"

namespace torch::nn {
class Module;
}

namespace deepspeed::zero {

/// Lists the parameters of the module and its children: each tensor once, under its first name, in order of
/// registration.
std::vector<NamedTensor> named_parameters(const torch::nn::Module& module);

}  // namespace deepspeed::zero
