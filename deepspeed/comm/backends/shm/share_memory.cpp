#include "deepspeed/comm/backends/shm/share_memory.h"

#include <mutex>
#include <set>
#include <string>
#include <utility>

#include "deepspeed/base/log.h"
#include "deepspeed/comm/backends/shm/shm_backend.h"
#include "deepspeed/comm/job/local_place.h"
#include "deepspeed/comm/shm/meeting.h"

namespace deepspeed::comm {
namespace {

constexpr const char* kSwitchedOff = "shared memory is switched off";

// Logs each reason once per process, since a job makes many groups.
void log_once(const std::string& reason) {
  static auto& mutex = *new std::mutex;
  static auto& told = *new std::set<std::string>;
  const std::lock_guard lock(mutex);
  if (!told.insert(reason).second) return;
  log::warning("[comm] the ranks of this machine use sockets and no shared memory, which is slower: ",
               reason);
}

std::shared_ptr<shm::Arena> arena_if_possible() {
  try {
    return shm::Arena::of_process();
  } catch (const std::exception& error) {
    log_once(error.what());
    return nullptr;
  }
}

}  // namespace

c10::intrusive_ptr<c10d::Backend> share_memory(const Job& job, const std::vector<int>& global_ranks,
                                               c10::intrusive_ptr<c10d::Backend> gloo,
                                               const c10::intrusive_ptr<c10d::Store>& store) {
  shm::MeetingPlan plan;
  plan.rank = gloo->getRank();
  plan.names = global_ranks;
  plan.machine = own_machine();
  if (!job.shared_memory) {
    plan.refusal = kSwitchedOff;
  } else if (plan.arena = arena_if_possible(); !plan.arena) {
    plan.refusal = "no memory that peers can read is to be had";
  }
  const shm::Board board{[&](const std::string& key, const std::string& text) {
                           store->set(key, std::vector<uint8_t>(text.begin(), text.end()));
                         },
                         [&](const std::string& key) {
                           const auto bytes = store->get(key);
                           return std::string(bytes.begin(), bytes.end());
                         }};
  auto met = shm::meet(board, std::move(plan));
  if (met.member) {
    shm::Arena::set_shared();
    return c10::make_intrusive<ShmBackend>(
        std::move(gloo), std::make_unique<SharedExchange>(std::move(met.member), job.timeout));
  }
  const bool is_wanted = job.shared_memory && met.is_one_machine;
  if (is_wanted && gloo->getRank() == 0 && met.reason.find(kSwitchedOff) == std::string::npos)
    log_once(met.reason);
  return gloo;
}

}  // namespace deepspeed::comm
