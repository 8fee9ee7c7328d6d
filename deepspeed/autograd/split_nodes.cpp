#include "deepspeed/autograd/split_nodes.h"

namespace deepspeed::autograd {

const std::unordered_set<std::string>& splitting_nodes() {
  static const auto& names = *new std::unordered_set<std::string>{
      "MmBackward0", "AddmmBackward0", "BmmBackward0", "BaddbmmBackward0", "ConvolutionBackward0",
  };
  return names;
}

}  // namespace deepspeed::autograd
