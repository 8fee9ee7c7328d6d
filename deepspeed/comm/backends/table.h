// This table is the one place that knows the backends by name. A backend is a row here and a file that makes
// it. Internal to this folder.
#pragma once

#include <set>
#include <string>
#include <vector>

#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include "deepspeed/comm/group/group_impl.h"
#include "deepspeed/comm/job/job.h"

namespace deepspeed::comm {

/// Answers what the other files ask of a backend in place of its name.
struct Backend {
  const char* name;  // as `dist_backend` says it
  /// Names that torch's own groups have for it.
  std::set<std::string> also;
  c10d::ProcessGroup::BackendType type;
  at::DeviceType device;  // of the tensors that it takes
  /// Says whether sends and receives meet by their tags. Then collectives are made of them where that is
  /// faster (direct_exchange.h), and calls that differ never meet; else the guard compares what ranks call.
  bool meets_by_tags;
  /// Says whether it can be chosen where `dist_backend` names none.
  bool (*suits)(const Job& job);
  /// Connects the ranks of a group, which share `store`. Throws NotSupportedError where this build or machine
  /// lacks what it needs, and c10d's errors.
  c10::intrusive_ptr<c10d::Backend> (*make)(const Job& job, const c10::intrusive_ptr<c10d::Store>& store,
                                            const GroupDescription& group);
};

/// Returns the backend of a job: the one that is `asked` for, or, where that is empty, the last row that
/// suits the job. Throws UsageError for an unknown name and NotSupportedError for what no build can have.
const Backend& choose_backend(const Job& job, const std::string& asked);

/// Warns once, on rank 0, where a job runs on the CPU of a machine with NVIDIA's driver, and says why.
void warn_of_missed_cuda(const Job& job);

/// Returns the row of a group that this library did not make: the last one of which the group has a backend,
/// for tensors of any device. Throws UsageError naming its backends where none is in the table.
const Backend& backend_of(c10d::ProcessGroup& group);

/// Returns the backend that takes the CPU tensors of a group of `chosen`: itself, or the table's first row
/// beside it.
const Backend& cpu_backend_of(const Backend& chosen);

/// Connects the ranks of a group over `chosen`, and over cpu_backend_of() it where that is another one. CPU
/// tensors go over shared memory where the job wants that and the ranks are on one machine.
c10::intrusive_ptr<c10d::ProcessGroup> connect(const Backend& chosen, const Job& job,
                                               const GroupDescription& group,
                                               const c10::intrusive_ptr<c10d::Store>& store);

}  // namespace deepspeed::comm
