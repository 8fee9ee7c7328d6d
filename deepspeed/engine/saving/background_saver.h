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
  /// Makes a group in which the saving threads communicate. The callers of this object use the group
  /// `engine`. Collective.
  BackgroundSaver(const comm::World& world, const comm::ProcessGroup& engine);
  /// Waits for the running save; its failure goes to the log.
  ~BackgroundSaver();
  BackgroundSaver(const BackgroundSaver&) = delete;
  BackgroundSaver& operator=(const BackgroundSaver&) = delete;

  /// Returns whether every machine has memory for the copies of all its ranks.
  bool has_room_for(const SaveJob& job) const;
  /// Starts copying the contents to host memory and returns. A thread then writes them. No other save may be
  /// running.
  void start(SaveJob job);
  /// Waits for the running save, if any. Throws the save's error, once.
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
