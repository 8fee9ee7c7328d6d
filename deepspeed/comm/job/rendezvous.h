// Opens the store through which the ranks of a job find each other. Internal to this folder.
#pragma once

#include <torch/csrc/distributed/c10d/Store.hpp>

#include "deepspeed/comm/job/job.h"

namespace deepspeed::comm {

/// Opens the job's store and waits until every rank is there. A job of one rank gets a store in its own
/// memory. Throws CommError after the job's timeout, naming the address and port or the path, this rank, and
/// the missing ranks.
c10::intrusive_ptr<c10d::Store> join_job(const Job& job);

/// Announces this rank in the store, and waits until every rank has done so. Throws CommError like
/// join_job().
void meet_over(const Job& job, c10d::Store& store);

/// Returns a view of `store` that puts `prefix` in front of all keys.
c10::intrusive_ptr<c10d::Store> sub_store(const c10::intrusive_ptr<c10d::Store>& store,
                                          const std::string& prefix);

}  // namespace deepspeed::comm
