// A collective over tensors whose result is known, so that it can be verified before it is timed. Internal to
// this folder.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include <ATen/core/Tensor.h>

#include "deepspeed/comm/group/process_group.h"

namespace deepspeed::comm {

struct KnownCollective {
  int64_t bytes = 0;          // of the tensors in all, as bandwidth_of() counts them
  at::Tensor input, output;   // where they are one tensor, `run` works in place
  at::Tensor expected;        // what `output` then holds; undefined where this rank receives nothing
  std::function<void()> run;  // all ranks call it alike
};

/// Makes the collective of this name, one of measured_operations(), for at least one element a rank and at
/// most `bytes`, a multiple of the number of ranks. in_buffers: tensors are comm::buffer()s, as the engine's
/// are.
KnownCollective known_collective(const ProcessGroup& group, const std::string& operation, int64_t bytes,
                                 const at::TensorOptions& options, bool in_buffers);

}  // namespace deepspeed::comm
