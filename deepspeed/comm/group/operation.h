// Represents an operation of a group as a value, so that a backend needs one function for all. Internal to
// this folder.
#pragma once

#include <chrono>
#include <cstdint>
#include <variant>
#include <vector>

#include <ATen/core/Tensor.h>

#include "deepspeed/base/interval.h"
#include "deepspeed/comm/group/process_group.h"

namespace deepspeed::comm {

struct GroupDescription;

/// Holds the arguments of the functions start_...() of ProcessGroup, one struct for each. kName names the
/// operation in errors.
namespace operations {
struct AllReduce {
  static constexpr const char* kName = "all_reduce";
  at::Tensor tensor;
  ReduceOp op;
};
struct Broadcast {
  static constexpr const char* kName = "broadcast";
  at::Tensor tensor;
  int root;
};
struct AllGather {
  static constexpr const char* kName = "all_gather";
  at::Tensor output;
  at::Tensor input;
};
struct ReduceScatter {
  static constexpr const char* kName = "reduce_scatter";
  at::Tensor output;
  at::Tensor input;
  ReduceOp op;
};
struct ReduceToOwners {
  static constexpr const char* kName = "reduce_to_owners";
  at::Tensor tensor;
  std::vector<Interval> owned;
  OwnSum own = {};
};
struct AllToAll {
  static constexpr const char* kName = "all_to_all";
  at::Tensor output;
  at::Tensor input;
};
struct Send {
  static constexpr const char* kName = "send";
  at::Tensor tensor;
  int destination;
  int tag;
};
struct Recv {
  static constexpr const char* kName = "recv";
  at::Tensor tensor;
  int source;
  int tag;
};
struct Barrier {
  static constexpr const char* kName = "barrier";
};
/// Describes a barrier that is done when start() returns. start() itself waits in the store, which shows
/// which ranks are missing.
struct MonitoredBarrier {
  static constexpr const char* kName = "monitored_barrier";
  std::chrono::milliseconds timeout;
  bool wait_all_ranks;
};
}  // namespace operations

/// Holds one of the operations, for std::visit().
struct Operation
    : std::variant<operations::AllReduce, operations::Broadcast, operations::AllGather,
                   operations::ReduceScatter, operations::ReduceToOwners, operations::AllToAll,
                   operations::Send, operations::Recv, operations::Barrier, operations::MonitoredBarrier> {
  using variant::variant;
};

const char* name_of(const Operation& operation);

/// Copies this rank's sum, times own.factor, from the tensor to own.result. The sum is at `interval` of the
/// flattened tensor, in elements. Does nothing if own.result is undefined.
void put_own_sum(const OwnSum& own, const at::Tensor& tensor, const Interval& interval);

/// Returns the tensor that consists of all ranks' parts, or a message's tensor. For all_to_all, whose tensors
/// have the same size, it is the output. Undefined for barriers.
at::Tensor whole_tensor_of(const Operation& operation);

/// Throws UsageError for arguments that do not fit. These are tensors that are not dense and contiguous,
/// mismatched sizes, dtypes or devices, and ranks, tags or intervals out of range.
void check_arguments(const Operation& operation, const GroupDescription& group);

}  // namespace deepspeed::comm
