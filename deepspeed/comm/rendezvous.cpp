#include "deepspeed/comm/rendezvous.h"

#include <thread>

#include <torch/csrc/distributed/c10d/FileStore.hpp>
#include <torch/csrc/distributed/c10d/HashStore.hpp>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>

#include "deepspeed/base/error.h"
#include "deepspeed/base/text.h"

namespace deepspeed::comm {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;
using StorePtr = c10::intrusive_ptr<c10d::Store>;

std::string place_of(const Job& job) {
  if (job.rendezvous == Rendezvous::kFile) return "the file " + job.path;
  return message("the address ", job.master_addr, ", port ", job.master_port);
}

[[noreturn]] void fail(const Job& job, const std::string& reason) {
  raise<CommError>("comm", "rank ", job.rank, " of ", job.world_size, " could not join the job at ",
                   place_of(job), " (limit ", static_cast<double>(job.timeout.count()) / 1000.0,
                   " s): ", reason);
}

StorePtr open_store(const Job& job) {
  if (job.rendezvous == Rendezvous::kNone) return c10::make_intrusive<c10d::HashStore>();
  if (job.rendezvous == Rendezvous::kFile) {
    return c10::make_intrusive<c10d::FileStore>(job.path, job.world_size);
  }
  c10d::TCPStoreOptions options;
  options.port = static_cast<std::uint16_t>(job.master_port);
  options.isServer = job.rank == 0;
  options.numWorkers = job.world_size;
  options.waitWorkers = false;  // wait_for_all() waits, and knows who is missing
  options.timeout = job.timeout;
  return c10::make_intrusive<c10d::TCPStore>(job.master_addr, options);
}

std::string joined_key(int rank) { return "joined/" + std::to_string(rank); }

void wait_for_all(const Job& job, c10d::Store& store, Clock::time_point deadline) {
  store.set(joined_key(job.rank), std::string("1"));
  std::string missing;
  for (int rank = 0; rank < job.world_size; ++rank) {
    const auto left = std::chrono::duration_cast<milliseconds>(deadline - Clock::now());
    try {
      // Once the time is up, the remaining ranks only get a look.
      store.wait({joined_key(rank)}, std::max(left, milliseconds(1)));
    } catch (const std::exception&) {
      if (Clock::now() < deadline) throw;
      missing += (missing.empty() ? "" : ", ") + std::to_string(rank);
    }
  }
  if (!missing.empty()) fail(job, "no sign of rank(s) " + missing);
}

}  // namespace

StorePtr join_job(const Job& job) {
  const auto deadline = Clock::now() + job.timeout;
  try {
    auto store = open_store(job);
    store->setTimeout(job.timeout);
    wait_for_all(job, *store, deadline);
    return store;
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
