#include "deepspeed/engine/saving/background_saver.h"

#include <chrono>
#include <utility>

#include "deepspeed/base/log.h"
#include "deepspeed/comm/watch/own_thread.h"
#include "deepspeed/device/accelerator/memory.h"

namespace deepspeed {
namespace {

// Share of the free host memory that copies may take. The rest is for the program's own needs during the
// save.
constexpr double kUsableShare = 0.8;

}  // namespace

BackgroundSaver::BackgroundSaver(const comm::World& world, const comm::ProcessGroup& engine)
    : world_(world), engine_(engine), group_(world.own_group("checkpoints of " + engine.name())) {}

BackgroundSaver::~BackgroundSaver() {
  try {
    wait();
  } catch (const std::exception&) {
    // The thread has logged the error; a destructor must not throw it.
  }
}

bool BackgroundSaver::has_room_for(const SaveJob& job) const {
  const auto needed = double(snapshot_.missing_bytes(job.contents)) * world_.local_size();
  const bool fits = needed <= kUsableShare * double(device::available_host_bytes());
  return engine_.all_reduce_scalar(fits ? 1 : 0, comm::ReduceOp::kMin) > 0;
}

void BackgroundSaver::start(SaveJob job) {
  snapshot_.take(job.contents);
  pending_ = std::async(std::launch::async, [this, job = std::move(job)]() mutable {
    const comm::OwnThread apart;
    try {
      snapshot_.finish();
      job.run(group_);
    } catch (const std::exception& error) {
      log::error("[checkpoint] ", job.directory, "/", job.tag, " was not saved: ", error.what());
      throw;
    }
  });
}

void BackgroundSaver::wait() {
  if (pending_.valid()) pending_.get();
}

bool BackgroundSaver::is_done() const {
  return !pending_.valid() || pending_.wait_for(std::chrono::seconds(0)) == std::future_status::ready;
}

}  // namespace deepspeed
