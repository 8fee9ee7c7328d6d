#include "deepspeed/comm/init.h"

#include <mutex>
#include <utility>

#include "deepspeed/base/error.h"
#include "deepspeed/base/log.h"
#include "deepspeed/base/message.h"
#include "deepspeed/comm/backends/table.h"
#include "deepspeed/comm/current_world.h"
#include "deepspeed/comm/job/agreed_links.h"
#include "deepspeed/comm/job/job.h"
#include "deepspeed/comm/job/local_place.h"
#include "deepspeed/comm/job/rendezvous.h"
#include "deepspeed/comm/making/group_factory.h"
#include "deepspeed/comm/world.h"

namespace deepspeed::comm {
namespace {

std::shared_ptr<WorldImpl> join(const InitOptions& options) {
  auto job = describe_job(options);
  const Backend& backend = choose_backend(job, options.dist_backend);
  log::set_rank(job.rank);
  const auto store = join_job(job);
  if (job.world_size > 1) {
    find_local_place(job, *store);
    agree_on_links(job, *store);
  }
  std::shared_ptr<DivergenceGuard> guard;
  if (job.world_size > 1)
    guard = std::make_shared<DivergenceGuard>(sub_store(store, kGuardStore), job.rank,
                                              DivergenceGuard::ReasonToEnd(), job.neighbours());
  auto world = std::make_shared<WorldImpl>(job, group_factory(backend, job, store, guard), guard);
  if (options.verbose)
    log::info("comm: ", backend.name, ", ", job.world_size, job.world_size == 1 ? " rank" : " ranks",
              job.launcher.empty() ? "" : " started by ", job.launcher);
  return world;
}

}  // namespace

int World::rank() const { return checked_world(impl_).job().rank; }
int World::size() const { return checked_world(impl_).job().world_size; }
int World::local_rank() const { return checked_world(impl_).job().local_rank; }
int World::local_size() const { return checked_world(impl_).job().local_size; }
int World::ranks_per_node() const { return checked_world(impl_).ranks_per_node(); }
const ProcessGroup& World::group() const { return checked_world(impl_).group(); }

ProcessGroup World::new_group(const std::vector<int>& global_ranks, const std::string& name) const {
  return checked_world(impl_).new_group(global_ranks, name);
}

ProcessGroup World::own_group(const std::string& name, const std::string& purpose) const {
  return checked_world(impl_).own_group(name, purpose);
}

ProcessGroup World::own_group(const std::string& name, const std::string& purpose,
                              const std::vector<int>& global_ranks) const {
  return checked_world(impl_).own_group(name, purpose, global_ranks);
}

ProcessGroup World::adopt_group(const c10::intrusive_ptr<c10d::ProcessGroup>& group,
                                const std::vector<int>& global_ranks) const {
  return checked_world(impl_).adopt_group(group, global_ranks);
}

bool World::was_left() const { return checked_world(impl_).was_left(); }

void World::shutdown() {
  WorldImpl& world = checked_world(impl_);
  if (world.group()) {
    world.group().complete();  // the barrier only synchronizes hosts; after it all devices are done too
    Work barrier = world.group().start_barrier();
    world.end_calls_of_this_thread();  // ranks that wait for this thread elsewhere are told
    barrier.wait();
  }
  world.leave(/*together=*/true);
}

World init_distributed(const InitOptions& options) {
  auto& current = current_world();
  const std::lock_guard lock(current.mutex);
  if (!current.get()) current.impl = join(options);
  return World(current.impl);
}

bool is_initialized() {
  auto& current = current_world();
  const std::lock_guard lock(current.mutex);
  return current.get() != nullptr;
}

World world() {
  auto& current = current_world();
  const std::lock_guard lock(current.mutex);
  if (!current.get()) raise<UsageError>("there is no world yet; call init_distributed() first");
  return World(current.impl);
}

namespace {

void leave(const char* caller, bool completes) {
  std::shared_ptr<WorldImpl> left;  // ends without the lock
  {
    auto& current = current_world();
    const std::lock_guard lock(current.mutex);
    left = std::exchange(current.impl, nullptr);
  }
  // If the world has no other handle, its end tells waiting ranks what this rank called last. An adopted
  // world is always ended here, because the owner of its c10d group destroys that group next.
  if (!left || (left.use_count() == 1 && !left->is_adopted())) return;
  left->end(message("rank ", left->job().rank, " left the world that it had ",
                    left->is_adopted() ? "adopted" : "joined", ", by ", caller,
                    "(): everything made from it ended with it"),
            completes);
}

}  // namespace

void destroy_process_group() { leave("destroy_process_group", true); }
void abort_process_group() { leave("abort_process_group", false); }

}  // namespace deepspeed::comm
