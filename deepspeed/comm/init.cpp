#include "deepspeed/comm/init.h"

#include <algorithm>
#include <mutex>

#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

#include "deepspeed/base/error.h"
#include "deepspeed/base/log.h"
#include "deepspeed/base/text.h"
#include "deepspeed/comm/backends/c10d_group.h"
#include "deepspeed/comm/backends/identical_ranks.h"
#include "deepspeed/comm/backends/table.h"
#include "deepspeed/comm/job/job.h"
#include "deepspeed/comm/job/local_place.h"
#include "deepspeed/comm/job/rendezvous.h"
#include "deepspeed/comm/own_meeting.h"
#include "deepspeed/comm/world_impl.h"

namespace deepspeed::comm {
namespace {

using StorePtr = c10::intrusive_ptr<c10d::Store>;

// Meets the other ranks over a client of the store that holds up nobody else: one client serves one call at a
// time, also one that waits.
c10::intrusive_ptr<c10d::ProcessGroup> connect_own(const Backend& backend, const Job& job,
                                                   const GroupDescription& group, const std::string& key,
                                                   const StorePtr& world_store) {
  const auto store = world_store->clone();
  store->setTimeout(job.timeout);
  meet_to_connect(group, key, *sub_store(store, "own_groups/"));
  return connect(backend, job, group.rank, group.size(), sub_store(store, "group/" + key + "/"));
}

ProcessGroup make_group(const Backend& backend, const Job& job, const StorePtr& world_store,
                        const std::shared_ptr<DivergenceGuard>& guard, GroupDescription group,
                        const GroupRequest& request) {
  const auto store = sub_store(world_store, "group/" + request.key + "/");
  if (group.size() == 1) {
    auto alone = c10::make_intrusive<c10d::ProcessGroup>(store, 0, 1);
    return ProcessGroup(std::make_shared<IdenticalRanksGroup>(std::move(group), std::move(alone)));
  }
  try {
    auto connected = request.is_own ? connect_own(backend, job, group, request.key, world_store)
                                    : connect(backend, job, group.rank, group.size(), store);
    connected->setGroupName(group.name);
    auto made = C10dGroup::make(backend, std::move(group), request.key, std::move(connected), store, guard);
    if (request.is_own) return ProcessGroup(C10dGroup::closing_together(std::move(made)));
    return ProcessGroup(std::move(made));
  } catch (const Error&) {
    throw;
  } catch (const std::exception& error) {
    raise<CommError>("the group '", group.name, "' of ", group.size(),
                     " ranks could not be connected on rank ", group.rank, ": ", first_line(error.what()));
  }
}

World join(const InitOptions& options) {
  auto job = describe_job(options);
  const Backend& backend = choose_backend(job, options.dist_backend);
  log::set_rank(job.rank);
  const auto store = join_job(job);
  if (job.world_size > 1) find_local_place(job, *store);
  std::shared_ptr<DivergenceGuard> guard;
  if (job.world_size > 1) guard = std::make_shared<DivergenceGuard>(sub_store(store, "guard/"), job.rank);
  const auto factory = [job, store, guard, &backend](const GroupRequest& request) {
    const auto& ranks = request.global_ranks;
    const auto place = std::find(ranks.begin(), ranks.end(), job.rank) - ranks.begin();
    return make_group(
        backend, job, store, guard,
        {request.name, backend.name, backend.device, static_cast<int>(place), ranks, job.timeout}, request);
  };
  World world(std::make_shared<World::Impl>(job, factory, guard));
  if (options.verbose)
    log::info("comm: ", backend.name, ", ", job.world_size, job.world_size == 1 ? " rank" : " ranks",
              job.launcher.empty() ? "" : " started by ", job.launcher);
  return world;
}

// The process' world. Never destroyed: at exit, the threads of a backend may outlive the statics that they
// use.
struct Current {
  std::mutex mutex;
  World world;
};

Current& current() {
  static auto& instance = *new Current;
  return instance;
}

}  // namespace

World init_distributed(const InitOptions& options) {
  auto& state = current();
  const std::lock_guard lock(state.mutex);
  if (!state.world) state.world = join(options);
  return state.world;
}

bool is_initialized() {
  auto& state = current();
  const std::lock_guard lock(state.mutex);
  return static_cast<bool>(state.world);
}

World world() {
  auto& state = current();
  const std::lock_guard lock(state.mutex);
  if (!state.world) raise<UsageError>("there is no world yet; call init_distributed() first");
  return state.world;
}

void destroy_process_group() {
  World left;
  auto& state = current();
  const std::lock_guard lock(state.mutex);
  std::swap(left, state.world);
}

}  // namespace deepspeed::comm
