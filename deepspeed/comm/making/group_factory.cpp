#include "deepspeed/comm/making/group_factory.h"

#include <algorithm>

#include "deepspeed/base/error.h"
#include "deepspeed/base/message.h"
#include "deepspeed/base/text.h"
#include "deepspeed/base/text_file.h"
#include "deepspeed/comm/backends/c10d_group.h"
#include "deepspeed/comm/backends/identical_ranks.h"
#include "deepspeed/comm/group/group_nodes.h"
#include "deepspeed/comm/group/quiet_backend.h"
#include "deepspeed/comm/job/known_host.h"
#include "deepspeed/comm/job/rendezvous.h"
#include "deepspeed/comm/making/adopted_group.h"
#include "deepspeed/comm/making/own_meeting.h"

namespace deepspeed::comm {
namespace {

using StorePtr = c10::intrusive_ptr<c10d::Store>;
using GroupPtr = std::shared_ptr<GroupImpl>;

// How long a new client tries to reach the store before the old one checks whether it is still there.
constexpr std::chrono::seconds kConnecting(5);

// Returns a client from which others are cloned.
StorePtr parent_client(const Job& job, const StorePtr& world_store) {
  const QuietBackend quiet;
  const NoNameServer none(job.master_addr);
  auto store = world_store->clone();
  store->setTimeout(kConnecting);
  return store;
}

StorePtr new_client(const Job& job, c10d::Store& world_store, const StorePtr& parent) {
  const auto end = std::chrono::steady_clock::now() + job.timeout;
  const NoNameServer none(job.master_addr);
  while (true) {
    world_store.check({"any"});  // fails at once if the store's rank has ended
    try {
      return parent->clone();
    } catch (const std::exception&) {
      if (std::chrono::steady_clock::now() >= end) throw;
    }
  }
}

// Meets the other ranks of a group and returns the client of the store that was used. A client serves one
// call at a time, even if that waits. Own groups can be made by any thread, so each gets its own client and
// does not block others.
StorePtr meet(const Job& job, const GroupDescription& group, const GroupRequest& request,
              const StorePtr& world_store, const StorePtr& parent) {
  const QuietBackend quiet;  // the store's rank may have ended
  try {
    const auto store = request.is_own ? new_client(job, *world_store, parent) : world_store;
    store->setTimeout(job.timeout);
    const auto guarded = sub_store(store, kGuardStore);
    meet_to_connect(group, request.key, *sub_store(store, "meetings/"),
                    AbsentRanks(*guarded, group.global_ranks, job.neighbours()));
    return store;
  } catch (const Error&) {
    throw;
  } catch (const std::exception& error) {
    raise<CommError>("rank 0, which holds the store where ranks meet, cannot be reached, so the group '",
                     group.name, "' cannot be made; it ended or left the job (", first_line(error.what()),
                     ")");
  }
}

// Connects the ranks on this rank's node, and those at its place on each node. Returns null unless the group
// has several nodes with several ranks each and the links are known.
std::unique_ptr<NodeLevels> connect_levels(const Backend& backend, const Job& job,
                                           const GroupDescription& group, const StorePtr& store) {
  if (!job.links) return nullptr;
  const auto nodes = nodes_of_group(group.global_ranks, group.rank, job.ranks_per_node);
  if (!nodes) return nullptr;
  const Backend& cpu = cpu_backend_of(backend);
  const int node = group.rank / nodes->places, place = group.rank % nodes->places;
  const auto connect_part = [&](const std::string& part, const std::vector<int>& ranks, int rank) {
    GroupDescription of_part = group;
    of_part.name += "." + part;
    of_part.global_ranks = ranks;
    of_part.rank = rank;
    return connect(cpu, job, of_part, sub_store(store, part + "/"));
  };
  auto within = connect_part(message("node", node), nodes->node, place);
  auto across = connect_part(message("place", place), nodes->across, node);
  return std::make_unique<NodeLevels>(cpu, std::move(within), std::move(across), *job.links, group.timeout);
}

GroupPtr make_group(const Backend& backend, const Job& job, const StorePtr& world_store,
                    const StorePtr& parent, const std::shared_ptr<DivergenceGuard>& guard,
                    GroupDescription group, const GroupRequest& request) {
  const auto store = sub_store(world_store, "group/" + request.key + "/");
  if (group.size() == 1) {
    auto alone = c10::make_intrusive<c10d::ProcessGroup>(store, 0, 1);
    return std::make_shared<IdenticalRanksGroup>(std::move(group), std::move(alone));
  }
  // gloo's thread ends the process if it cannot open a connection.
  constexpr uint64_t kOthers = 32;  // for the store, the listener, and what training opens
  require_open_files(2 * group.size() + kOthers,
                     message("the group '", group.name, "' of ", group.size(), " ranks"));
  try {
    const auto met = sub_store(meet(job, group, request, world_store, parent), "group/" + request.key + "/");
    auto connected = connect(backend, job, group, met);
    connected->setGroupName(group.name);
    auto levels = connect_levels(backend, job, group, met);
    auto made = C10dGroup::make(backend, std::move(group), request.key, std::move(connected), store, guard,
                                std::move(levels));
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
  const StorePtr parent = job.world_size > 1 ? parent_client(job, store) : nullptr;
  return [job, store, parent, guard, &backend](const GroupRequest& request) {
    const auto& ranks = request.global_ranks;
    const auto place = std::find(ranks.begin(), ranks.end(), job.rank) - ranks.begin();
    const Backend& chosen = request.given ? backend_of(*request.given) : backend;
    auto group = make_group(
        chosen, job, store, parent, guard,
        {request.name, chosen.name, chosen.device, static_cast<int>(place), ranks, job.timeout}, request);
    if (request.given) group = std::make_shared<AdoptedGroup>(std::move(group), request.given);
    return ProcessGroup(std::move(group));
  };
}

}  // namespace deepspeed::comm
