// Saves during training: the files' contents are copied to host memory and written by a thread.
#pragma once

#include <future>

#include "deepspeed/checkpoint/archive/host_snapshot.h"
#include "deepspeed/comm/init.h"
#include "deepspeed/engine/saving/save_job.h"

namespace deepspeed {

/// Saves on a thread. Every function is collective.
class BackgroundSaver {
 public:
  /// Makes the groups: the saving threads use one of their own, the callers use `engine`. Collective.
  BackgroundSaver(const comm::World& world, const comm::ProcessGroup& engine);
  /// Waits for the running save; its failure goes to the log.
  ~BackgroundSaver();
  BackgroundSaver(const BackgroundSaver&) = delete;
  BackgroundSaver& operator=(const BackgroundSaver&) = delete;

  /// Returns whether every machine has memory for the copies of all its ranks.
  bool has_room_for(const SaveJob& job) const;
  /// Copies what must be copied first, and returns while the rest goes on. No other save may be running.
  void start(SaveJob job);
  /// Waits for the running save, if any. Throws, once, what it threw.
  void wait();
  bool is_done() const;

 private:
  comm::World world_;
  const comm::ProcessGroup engine_;
  const comm::ProcessGroup group_;
  checkpoint::HostSnapshot snapshot_;
  std::future<void> pending_;
};

}  // namespace deepspeed
