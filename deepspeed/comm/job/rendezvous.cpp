// Rank 0 serves the store unless a launcher's agent does. The others try its addresses until the deadline.
// Then all ranks announce themselves and wait for each other. An error names the missing ranks.
#include "deepspeed/comm/job/rendezvous.h"

#include <memory>
#include <mutex>
#include <random>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <torch/csrc/distributed/c10d/FileStore.hpp>
#include <torch/csrc/distributed/c10d/HashStore.hpp>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>

#include <unistd.h>

#include "deepspeed/base/env.h"
#include "deepspeed/base/error.h"
#include "deepspeed/base/log.h"
#include "deepspeed/base/message.h"
#include "deepspeed/base/system/clock.h"
#include "deepspeed/base/text.h"
#include "deepspeed/comm/group/quiet_backend.h"
#include "deepspeed/comm/group/store_polling.h"
#include "deepspeed/comm/job/known_host.h"
#include "deepspeed/comm/job/listener.h"
#include "deepspeed/comm/store/socket_store.h"
#include "deepspeed/comm/store/store_server.h"

namespace deepspeed::comm {
namespace {

using std::chrono::milliseconds;
using StorePtr = c10::intrusive_ptr<c10d::Store>;

// How long rank 0 keeps the store for the others after ranks are found missing.
constexpr milliseconds kLastLooks(1000);
// The store's wait may end slightly before the deadline on this side's clock.
constexpr milliseconds kClockSlack(20);

std::string place_of(const Job& job) {
  if (job.rendezvous == Rendezvous::kFile) return "the file " + job.path;
  if (job.rendezvous == Rendezvous::kGiven) return "the store of the group to adopt";
  return message("the address ", job.master_addr, ", port ", job.master_port);
}

[[noreturn]] void fail(const Job& job, const std::string& reason) {
  raise<CommError>("rank ", job.rank, " of ", job.world_size, " could not join the job at ", place_of(job),
                   " (limit ", static_cast<double>(job.timeout.count()) / 1000.0, " s): ", reason);
}

// How often a rank checks whether rank 0 listens, and when it logs that it does not.
constexpr milliseconds kFirstLook(2), kNextLook(50), kPatienceWithRank0(10000);
// How long an address may be silent before the next is tried, and how long a resolved name is valid.
constexpr milliseconds kAddressIsSilent(10000), kNameIsKnown(5000);

std::vector<net::SocketAddress> addresses_of_rank_0(const Job& job, Clock::time_point deadline) {
  if (job.rendezvous == Rendezvous::kLocal) return {local_address(job)};
  wait_until_host_is_known(job, deadline);
  return addresses_of(job.master_addr, job.master_port);
}

// Returns a hint for a rank that looks for rank 0 only on its own machine. Rank 0 may listen elsewhere.
std::string advice_of(const Job& job) {
  if (job.rendezvous != Rendezvous::kLocal) return "";
  return message(
      "; this rank assumes that all ", job.world_size, " ranks are on its machine and of its user, from ",
      job.local_size == job.world_size ? "LOCAL_SIZE (or LOCAL_WORLD_SIZE)" : "MASTER_ADDR or init_method",
      ": set this variable, MASTER_PORT and ", kListenVariable, " to the same values on all ranks");
}

// Connects to rank 0's store once it is there. A socket of another job or user does not count.
StorePtr come_to_store(const Job& job, Clock::time_point deadline) {
  const auto begin = Clock::now();
  std::string why_not = "nobody listens there";
  bool was_told = false;
  auto known_until = begin;
  std::vector<net::SocketAddress> addresses;
  for (milliseconds pause = kFirstLook;; pause = std::min(pause * 2, kNextLook)) {
    if (Clock::now() >= known_until) {
      addresses = addresses_of_rank_0(job, deadline);
      known_until = Clock::now() + kNameIsKnown;
    }
    for (const net::SocketAddress& address : addresses) {
      auto socket = net::connect_to(address, std::min(deadline, Clock::now() + kAddressIsSilent), why_not);
      if (!socket || !greet_store(socket.get(), job.rank, job.world_size, deadline, why_not)) continue;
      return c10::make_intrusive<SocketStore>(address, std::move(socket), job.timeout);
    }
    const auto now = Clock::now();
    if (now >= deadline) fail(job, "rank 0 does not answer: " + why_not + advice_of(job));
    if (!was_told && now - begin > kPatienceWithRank0) {
      was_told = true;
      log::warning("[comm] rank ", job.rank, " of ", job.world_size, " waits for rank 0 at ", place_of(job),
                   ": ", why_not, advice_of(job));
    }
    std::this_thread::sleep_for(std::clamp<Clock::duration>(deadline - now, milliseconds(1), pause));
  }
}

// Holds the store that this process serves. Engines may still hold that store when the process has left its
// job and joins the next job at the same address.
struct Served {
  std::mutex mutex;
  std::weak_ptr<StoreServer> server;
  std::string place;
};

Served& served_store() {
  static auto& instance = *new Served;  // threads may outlive other statics
  return instance;
}

StorePtr serve_store(const Job& job, Clock::time_point deadline) {
  Served& served = served_store();
  const std::lock_guard lock(served.mutex);
  if (const auto before = served.server.lock(); before && served.place == place_of(job))
    before->stop_listening();
  // A server of c10d would listen at every address, and look up the name of every client.
  auto listener = job.rendezvous == Rendezvous::kLocal ? listen_on_this_machine(job) : listen_for_ranks(job);
  auto server =
      std::make_shared<StoreServer>(std::move(listener.socket), job.world_size, std::move(listener.reserved));
  served.server = server;
  served.place = place_of(job);
  std::string why_not;
  auto socket = reach_store(listener.address, job.rank, job.world_size, deadline, why_not);
  if (!socket) fail(job, "its own store cannot be reached: " + why_not);
  return c10::make_intrusive<SocketStore>(listener.address, std::move(socket), job.timeout,
                                          std::move(server));
}

std::string joined_key(int rank) { return "joined/" + std::to_string(rank); }

std::string here_key(int rank) { return "here/" + std::to_string(rank); }

std::string start_key(const std::string& name) { return "start_of/" + name; }

std::string gave_up_key(int rank) { return "gave_up/" + std::to_string(rank); }

// Returns whether the key appeared before the deadline. After the deadline, the key is still checked once.
// Throws if the store itself fails.
bool came(c10d::Store& store, const std::string& key, Clock::time_point deadline) {
  const auto left = std::chrono::ceil<milliseconds>(deadline - Clock::now());
  try {
    store.wait({key}, std::max(left, milliseconds(1)));
    return true;
  } catch (const std::exception&) {
    if (Clock::now() + kClockSlack < deadline) throw;
    return false;
  }
}

// Tells each announced rank the name of this start, until all have joined under it.
void name_this_start(const Job& job, c10d::Store& starts, c10d::Store& start, const std::string& name,
                     Clock::time_point deadline) {
  std::vector<std::string> told(job.world_size);
  std::set<int> missing;
  for (int rank = 1; rank < job.world_size; ++rank) missing.insert(rank);
  for (milliseconds pause = kFirstLook; !missing.empty() && Clock::now() < deadline;
       pause = std::min(pause * 2, kNextLook)) {
    std::erase_if(missing, [&](int rank) { return start.check({joined_key(rank)}); });
    for (const int rank : missing) {
      const auto here = read_if_set(starts, here_key(rank));
      if (!here || *here == told[rank]) continue;
      starts.set(start_key(*here), name);
      told[rank] = *here;
    }
    std::this_thread::sleep_for(pause);
  }
}

// torchrun keeps its store and the old keys when it restarts the ranks, and each of its agents counts
// restarts separately. So each process has its own key, and rank 0 answers it with the name of the start.
// Keys of earlier processes are answered too, which has no effect.
StorePtr come_to_agent(const Job& job, Clock::time_point deadline) {
  wait_until_host_is_known(job, deadline);
  c10d::TCPStoreOptions options;
  options.port = static_cast<std::uint16_t>(job.master_port);
  options.numWorkers = job.world_size;
  options.waitWorkers = false;  // wait_for_all() waits, and names missing ranks
  options.timeout = job.timeout;
  const NoNameServer none(job.master_addr);
  const auto starts = sub_store(c10::make_intrusive<c10d::TCPStore>(job.master_addr, options),
                                "deepspeed/" + env::get("TORCHELASTIC_RUN_ID").value_or("") + "/");
  std::random_device random;
  std::string name = message(job.rank, "-", ::getpid(), "-", random(), "-", random());
  if (job.rank == 0) {
    name_this_start(job, *starts, *sub_store(starts, name), name, deadline);
  } else {
    starts->set(here_key(job.rank), name);
    if (!came(*starts, start_key(name), deadline)) fail(job, "no sign of rank(s) 0");
    name = starts->get_to_str(start_key(name));
  }
  return sub_store(starts, name);
}

StorePtr store_of_job(const Job& job, Clock::time_point deadline) {
  switch (job.rendezvous) {
    case Rendezvous::kFile:
      return c10::make_intrusive<c10d::FileStore>(job.path, job.world_size);
    case Rendezvous::kAgent:
      return come_to_agent(job, deadline);
    case Rendezvous::kLocal:
    case Rendezvous::kTcp:
      return job.rank == 0 ? serve_store(job, deadline) : come_to_store(job, deadline);
    case Rendezvous::kNone:
    case Rendezvous::kGiven:
      break;
  }
  return c10::make_intrusive<c10d::HashStore>();
}

// The store ends with rank 0, so rank 0 first waits until the present ranks have found which ranks are
// missing.
void wait_for_last_looks(const Job& job, c10d::Store& store, const std::set<int>& missing) {
  store.set(gave_up_key(job.rank), std::string("1"));
  if (job.rank != 0) return;
  const auto deadline = Clock::now() + kLastLooks;
  for (int rank = 1; rank < job.world_size; ++rank) {
    if (!missing.contains(rank)) came(store, gave_up_key(rank), deadline);
  }
}

void wait_for_all(const Job& job, c10d::Store& store, Clock::time_point deadline) {
  store.set(joined_key(job.rank), std::string("1"));
  std::set<int> missing;
  for (int rank = 0; rank < job.world_size; ++rank) {
    if (!came(store, joined_key(rank), deadline)) missing.insert(rank);
  }
  if (missing.empty()) return;
  wait_for_last_looks(job, store, missing);
  std::string ranks;
  for (const int rank : missing) ranks += (ranks.empty() ? "" : ", ") + std::to_string(rank);
  fail(job, "no sign of rank(s) " + ranks);
}

}  // namespace

StorePtr join_job(const Job& job) {
  const auto deadline = Clock::now() + job.timeout;
  const QuietBackend quiet;
  try {
    auto store = store_of_job(job, deadline);
    store->setTimeout(job.timeout);
    wait_for_all(job, *store, deadline);
    return store;
  } catch (const CommError&) {
    throw;
  } catch (const std::exception& error) {
    fail(job, first_line(error.what()));
  }
}

void meet_over(const Job& job, c10d::Store& store) {
  const QuietBackend quiet;
  try {
    wait_for_all(job, store, Clock::now() + job.timeout);
  } catch (const CommError&) {
    throw;
  } catch (const std::exception& error) {
    fail(job, first_line(error.what()));
  }
}

StorePtr sub_store(const StorePtr& store, const std::string& prefix) {
  return c10::make_intrusive<c10d::PrefixStore>(prefix, store);
}

}  // namespace deepspeed::comm
