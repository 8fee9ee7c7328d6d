// Makes a collective with a known result, so that it can be verified before it is timed. Internal to this
// folder.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include <ATen/core/Tensor.h>

#include "deepspeed/comm/group/process_group.h"

namespace deepspeed::comm {

struct KnownCollective {
  int64_t bytes = 0;          // of the tensors in total, as bandwidth_of() counts them
  at::Tensor input, output;   // if they are the same tensor, `run` works in place
  at::Tensor expected;        // the content of `output` afterwards; undefined if this rank receives nothing
  std::function<void()> run;  // all ranks call it in the same way
};

/// Makes the collective `operation`, one of measured_operations(). Its size is at most `bytes`, at least one
/// element per rank, and a multiple of the number of ranks. With in_buffers its tensors are comm::buffer()s,
/// as in the engine.
KnownCollective known_collective(const ProcessGroup& group, const std::string& operation, int64_t bytes,
                                 const at::TensorOptions& options, bool in_buffers);

}  // namespace deepspeed::comm
