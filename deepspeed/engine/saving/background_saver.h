// The saver saves beside the training: what files will hold is copied to host memory, and written by a
// thread.
#pragma once

#include <future>

#include "deepspeed/checkpoint/archive/host_snapshot.h"
#include "deepspeed/comm/init.h"
#include "deepspeed/engine/saving/save_job.h"

namespace deepspeed {

/// Saves by a thread. All functions are called by all ranks together, as those of the engine.
class BackgroundSaver {
 public:
  /// Makes the groups: the ranks' threads meet in one of their own, the callers in `engine`. Collective.
  BackgroundSaver(const comm::World& world, const comm::ProcessGroup& engine);
  /// Waits for the save under way; its failure goes to the log.
  ~BackgroundSaver();
  BackgroundSaver(const BackgroundSaver&) = delete;
  BackgroundSaver& operator=(const BackgroundSaver&) = delete;

  /// Says whether the memory of every machine takes the copies of all its ranks.
  bool has_room_for(const SaveJob& job) const;
  /// Copies the contents, and returns while the rest goes on. No save may be under way.
  void start(SaveJob job);
  /// Waits for the save under way, if there is one. Throws, once, what it threw.
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
