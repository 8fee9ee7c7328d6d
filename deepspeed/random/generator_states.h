// All states that random numbers of a computation follow from.
#pragma once

#include <map>
#include <string>

#include <ATen/core/Tensor.h>

#include "deepspeed/base/export.h"

namespace deepspeed {

/// The states of the CPU's generator, of that of the current CUDA device where there is one, and of the
/// tracker's streams.
struct DEEPSPEED_API GeneratorStates {
  at::Tensor cpu;
  at::Tensor cuda;  // undefined without a device
  std::map<std::string, at::Tensor> tracker;

  static GeneratorStates now();
  void restore() const;
};

/// Computes from other states while it lives; then those before are put back, whatever happened.
class DEEPSPEED_API GeneratorScope {
 public:
  explicit GeneratorScope(const GeneratorStates& states);
  ~GeneratorScope();
  GeneratorScope(const GeneratorScope&) = delete;
  GeneratorScope& operator=(const GeneratorScope&) = delete;

 private:
  GeneratorStates before_;
};

}  // namespace deepspeed
