#include "deepspeed/comm/adopt.h"

#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>

#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>

#include "deepspeed/base/env.h"
#include "deepspeed/base/error.h"
#include "deepspeed/base/log.h"
#include "deepspeed/base/message.h"
#include "deepspeed/base/text.h"
#include "deepspeed/comm/backends/table.h"
#include "deepspeed/comm/current_world.h"
#include "deepspeed/comm/group/quiet_backend.h"
#include "deepspeed/comm/job/agreed_links.h"
#include "deepspeed/comm/job/known_host.h"
#include "deepspeed/comm/job/local_place.h"
#include "deepspeed/comm/job/rendezvous.h"
#include "deepspeed/comm/making/given_group.h"
#include "deepspeed/comm/making/group_factory.h"
#include "deepspeed/comm/store/socket_store.h"

namespace deepspeed::comm {
namespace {

using StorePtr = c10::intrusive_ptr<c10d::Store>;

StorePtr store_of(const GivenGroup& given) {
  StorePtr store = given.store ? given.store : given.group->getStore();
  if (!store) {
    raise<UsageError>(
        "the store of the group to adopt is null, and the group was made without one; expected the store "
        "over which its ranks met");
  }
  return store;
}

// Returns the host at which other machines reach the ranks, to choose a network. Casts raw pointers, because
// torch's cast of an intrusive_ptr leaks a reference if the class differs.
std::string host_of(StorePtr store) {
  if (auto* const prefixed = dynamic_cast<c10d::PrefixStore*>(store.get()))
    store = prefixed->getUnderlyingNonPrefixStore();
  if (const auto* const own = dynamic_cast<SocketStore*>(store.get())) return own->host();
  if (const auto* const tcp = dynamic_cast<c10d::TCPStore*>(store.get())) return tcp->getHost();
  return env::get("MASTER_ADDR").value_or("");
}

Job job_of(const GivenGroup& given) {
  Job job;
  job.rank = given.group->getRank();
  job.world_size = given.group->getSize();
  job.rendezvous = Rendezvous::kGiven;
  job.timeout = given.timeout;
  job.shared_memory = wants_shared_memory();
  if (given.local_rank == -1 && given.local_size == -1) return job;
  if (given.local_rank < 0 || given.local_rank >= given.local_size || given.local_size > job.world_size) {
    raise<UsageError>("local_rank is ", given.local_rank, " and local_size ", given.local_size,
                      ", expected a rank from 0 to below the size, which is at most the ", job.world_size,
                      " of the group; or -1 for both");
  }
  job.local_rank = given.local_rank;
  job.local_size = given.local_size;
  job.knows_local_rank = true;
  return job;
}

// Returns a new client of the store with keys for this adoption only. Each rank counts its adoptions of the
// group in the store, so that the nth on one rank meets the nth on the others.
StorePtr own_store(const Job& job, const StorePtr& given, const std::string& group_name) {
  const QuietBackend quiet;
  const NoNameServer none(host_of(given));
  try {
    const auto client = given->clone();
    client->setTimeout(job.timeout);
    const auto store = sub_store(client, "deepspeed/" + group_name + "/");
    const int64_t number = store->add("times/" + std::to_string(job.rank), 1);
    return sub_store(store, std::to_string(number) + "/");
  } catch (const std::exception& error) {
    raise<CommError>("rank ", job.rank, " of ", job.world_size,
                     " could not reach the store of the group to adopt: ", first_line(error.what()));
  }
}

std::shared_ptr<WorldImpl> make_world(const GivenGroup& given) {
  const std::string name = check_given_group(given.group);
  const Backend& backend = backend_of(*given.group);
  const auto given_store = store_of(given);
  auto job = job_of(given);
  if (backend.device == at::kCPU) warn_of_missed_cuda(job);
  const auto store = own_store(job, given_store, name);
  std::shared_ptr<DivergenceGuard> guard;
  const auto is_gone = [rank = job.rank, group = c10::weak_intrusive_ptr(given.group)] {
    return group.expired() ? std::optional(given_group_is_gone(rank)) : std::nullopt;
  };
  if (job.world_size > 1) {
    job.master_addr = host_of(given_store);
    meet_over(job, *store);
    find_local_place(job, *store);
    agree_on_links(job, *store);
    guard =
        std::make_shared<DivergenceGuard>(sub_store(store, kGuardStore), job.rank, is_gone, job.neighbours());
  }
  const auto factory = [is_gone,
                        make = group_factory(backend, job, store, guard)](const GroupRequest& request) {
    if (const auto reason = is_gone())
      raise<CommError>("the group '", request.name, "' cannot be made: ", *reason);
    return make(request);
  };
  return std::make_shared<WorldImpl>(job, factory, guard, given.group);
}

}  // namespace

JobStore open_store(const InitOptions& options) {
  const Job job = describe_job(options);
  JobStore result{nullptr, job.rank, job.world_size, job.is_one_machine()};
  if (job.rendezvous != Rendezvous::kFile) result.store = join_job(job);
  return result;
}

World adopt(const GivenGroup& given) { return World(make_world(given)); }

World adopt_as_world(const GivenGroup& given) {
  check_given_group(given.group);
  auto& current = current_world();
  const std::lock_guard lock(current.mutex);
  const auto present = current.get();
  if (present && present->group() && present->group().c10d_group() == given.group) return World(present);
  if (present && !present->is_adopted()) {
    raise<UsageError>("init_distributed() has made a world of ", present->job().world_size,
                      " ranks already, from another group than the given one; adopt the group first, or call "
                      "destroy_process_group() of this library first");
  }
  if (present) {
    current.impl = nullptr;
    present->end(message("rank ", present->job().rank, " adopted another process group as its world"));
  }
  current.impl = make_world(given);
  log::set_rank(current.impl->job().rank);
  return World(current.impl);
}

}  // namespace deepspeed::comm
