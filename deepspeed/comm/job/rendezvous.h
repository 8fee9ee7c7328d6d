// The ranks of a job find each other through this store. Internal to this folder.
#pragma once

#include <torch/csrc/distributed/c10d/Store.hpp>

#include "deepspeed/comm/job/job.h"

namespace deepspeed::comm {

/// Opens the job's store and waits until every rank is there. Throws CommError after the job's timeout; its
/// text names the address, the port or path, this rank and the ranks that did not come.
c10::intrusive_ptr<c10d::Store> join_job(const Job& job);

/// Waits until every rank is at this store, under its keys. Throws CommError as join_job() does.
void meet_over(const Job& job, c10d::Store& store);

/// Returns a part of `store` with keys of its own, under the prefix.
c10::intrusive_ptr<c10d::Store> sub_store(const c10::intrusive_ptr<c10d::Store>& store,
                                          const std::string& prefix);

}  // namespace deepspeed::comm
