#include "deepspeed/comm/job/rendezvous.h"

#include <set>
#include <string>

#include <torch/csrc/distributed/c10d/FileStore.hpp>
#include <torch/csrc/distributed/c10d/HashStore.hpp>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>

#include "deepspeed/base/error.h"
#include "deepspeed/base/text.h"
#include "deepspeed/comm/group/quiet_backend.h"
#include "deepspeed/comm/job/known_host.h"
#include "deepspeed/comm/job/listener.h"

namespace deepspeed::comm {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;
using StorePtr = c10::intrusive_ptr<c10d::Store>;

// How long rank 0 keeps the store for the others once ranks are missing.
constexpr milliseconds kLastLooks(1000);
// The store's wait may end a little before this side's clock says so.
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

StorePtr open_store(const Job& job, Clock::time_point deadline) {
  if (job.rendezvous == Rendezvous::kNone) return c10::make_intrusive<c10d::HashStore>();
  if (job.rendezvous == Rendezvous::kFile) {
    return c10::make_intrusive<c10d::FileStore>(job.path, job.world_size);
  }
  c10d::TCPStoreOptions options;
  options.port = static_cast<std::uint16_t>(job.master_port);
  options.isServer = job.rank == 0;
  Listener listener;
  if (options.isServer) {
    // By itself the store would listen at every address.
    listener = listen_for_ranks(job);
    options.masterListenFd = listener.socket;
  } else {
    wait_until_host_is_known(job, deadline);
  }
  options.numWorkers = job.world_size;
  options.waitWorkers = false;  // wait_for_all() waits, and knows who is missing
  options.timeout = job.timeout;
  return c10::make_intrusive<c10d::TCPStore>(options.isServer ? listener.address : job.master_addr, options);
}

std::string joined_key(int rank) { return "joined/" + std::to_string(rank); }

std::string gave_up_key(int rank) { return "gave_up/" + std::to_string(rank); }

// Says whether the key came before the deadline; once the time is up, each key gets a look. Throws where the
// store itself fails.
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

// Rank 0 takes the store with it, so those that are there look first for who is missing.
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
    auto store = open_store(job, deadline);
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
