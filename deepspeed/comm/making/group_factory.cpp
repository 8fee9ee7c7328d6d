#include "deepspeed/comm/making/group_factory.h"

#include <algorithm>

#include "deepspeed/base/error.h"
#include "deepspeed/base/text.h"
#include "deepspeed/comm/backends/c10d_group.h"
#include "deepspeed/comm/backends/identical_ranks.h"
#include "deepspeed/comm/job/rendezvous.h"
#include "deepspeed/comm/making/adopted_group.h"
#include "deepspeed/comm/making/own_meeting.h"

namespace deepspeed::comm {
namespace {

using StorePtr = c10::intrusive_ptr<c10d::Store>;
using GroupPtr = std::shared_ptr<ProcessGroup::Impl>;

// Meets the other ranks over a client of the store that holds up nobody else: one client serves one call at a
// time, also one that waits.
c10::intrusive_ptr<c10d::ProcessGroup> connect_own(const Backend& backend, const Job& job,
                                                   const GroupDescription& group, const std::string& key,
                                                   const StorePtr& world_store) {
  const auto store = world_store->clone();
  store->setTimeout(job.timeout);
  meet_to_connect(group, key, *sub_store(store, "own_groups/"));
  return connect(backend, job, group.global_ranks, group.rank, sub_store(store, "group/" + key + "/"));
}

GroupPtr make_group(const Backend& backend, const Job& job, const StorePtr& world_store,
                    const std::shared_ptr<DivergenceGuard>& guard, GroupDescription group,
                    const GroupRequest& request) {
  const auto store = sub_store(world_store, "group/" + request.key + "/");
  if (group.size() == 1) {
    auto alone = c10::make_intrusive<c10d::ProcessGroup>(store, 0, 1);
    return std::make_shared<IdenticalRanksGroup>(std::move(group), std::move(alone));
  }
  try {
    auto connected = request.is_own ? connect_own(backend, job, group, request.key, world_store)
                                    : connect(backend, job, group.global_ranks, group.rank, store);
    connected->setGroupName(group.name);
    auto made = C10dGroup::make(backend, std::move(group), request.key, std::move(connected), store, guard);
    if (request.is_own) return C10dGroup::closing_together(std::move(made));
    return made;
  } catch (const Error&) {
    throw;
  } catch (const std::exception& error) {
    raise<CommError>("the group '", group.name, "' of ", group.size(),
                     " ranks could not be connected on rank ", group.rank, ": ", first_line(error.what()));
  }
}

}  // namespace

GroupFactory group_factory(const Backend& backend, const Job& job, const StorePtr& store,
                           const std::shared_ptr<DivergenceGuard>& guard) {
  return [job, store, guard, &backend](const GroupRequest& request) {
    const auto& ranks = request.global_ranks;
    const auto place = std::find(ranks.begin(), ranks.end(), job.rank) - ranks.begin();
    const Backend& chosen = request.given ? backend_of(*request.given) : backend;
    auto group = make_group(
        chosen, job, store, guard,
        {request.name, chosen.name, chosen.device, static_cast<int>(place), ranks, job.timeout}, request);
    if (request.given) group = std::make_shared<AdoptedGroup>(std::move(group), request.given);
    return ProcessGroup(std::move(group));
  };
}

}  // namespace deepspeed::comm
