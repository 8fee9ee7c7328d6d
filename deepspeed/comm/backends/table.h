// Lists the backends; no other file uses their names. A backend is a row here and a file that makes it.
// Internal to this folder.
#pragma once

#include <set>
#include <string>
#include <vector>

#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include "deepspeed/comm/group/group_impl.h"
#include "deepspeed/comm/job/job.h"

namespace deepspeed::comm {

/// Describes a backend, so that other files need not check its name.
struct Backend {
  const char* name;  // as in `dist_backend`
  /// Further names that torch's own groups use for this backend.
  std::set<std::string> also;
  c10d::ProcessGroup::BackendType type;
  at::DeviceType device;  // of the tensors that it takes
  /// Tells whether sends and receives are matched by tags. Collectives can then be made of them
  /// (direct_exchange.h), and calls that differ between ranks never match. The ranks wait, and the guard
  /// (divergence_guard.h) compares the calls of waiting ranks. Without tags, differing calls may finish, so
  /// the guard also compares hashes of all calls.
  bool meets_by_tags;
  /// Returns whether the backend may be chosen if `dist_backend` is empty.
  bool (*suits)(const Job& job);
  /// Connects the ranks of a group, which share `store`. Throws c10d's errors. Throws NotSupportedError if
  /// this build or machine lacks what it needs.
  c10::intrusive_ptr<c10d::Backend> (*make)(const Job& job, const c10::intrusive_ptr<c10d::Store>& store,
                                            const GroupDescription& group);
};

/// Returns the backend named `asked`; if that is empty, the table's last row that suits the job. Throws
/// UsageError for an unknown name. Throws NotSupportedError for a backend that no build can have, and if
/// DS_ACCELERATOR asks for a missing device.
const Backend& choose_backend(const Job& job, const std::string& asked);

/// Warns once, on rank 0, if there is an NVIDIA driver but no CUDA library (cuda_library.h). Says why. To be
/// called for a job that uses the CPU.
void warn_of_missed_cuda(const Job& job);

/// Returns the row for a c10d group made outside this library. That is the table's last row whose backend the
/// group has, for any device. Throws UsageError naming the group's backends if none is in the table.
const Backend& backend_of(c10d::ProcessGroup& group);

/// Returns the backend for a group's CPU tensors. That is `chosen` if it takes them, otherwise the first row.
const Backend& cpu_backend_of(const Backend& chosen);

/// Connects the ranks of a group over `chosen` and returns the c10d group. Also connects them over
/// cpu_backend_of(chosen) if that is another backend. CPU tensors use shared memory if the job wants that and
/// the ranks are on one machine.
c10::intrusive_ptr<c10d::ProcessGroup> connect(const Backend& chosen, const Job& job,
                                               const GroupDescription& group,
                                               const c10::intrusive_ptr<c10d::Store>& store);

}  // namespace deepspeed::comm
