// Which weights stages hold copies of, and which stages.
#pragma once

#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

namespace deepspeed::pipe {

/// A weight of a tied module that this stage has.
struct TiedWeight {
  std::string key;   // of the module
  std::string name;  // in the model: "tied_modules.embed.weight"
  at::Tensor tensor;
  std::vector<int> stages;  // ascending; two or more
};

}  // namespace deepspeed::pipe
