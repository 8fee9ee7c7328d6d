// Tracks whether a device has done a group's work, since waiting for an NCCL operation only blocks the
// current stream. Internal to this folder.
#pragma once

#include <map>
#include <mutex>
#include <utility>
#include <vector>

#include <c10/core/Event.h>
#include <torch/csrc/distributed/c10d/Work.hpp>

namespace deepspeed::comm {

/// Tracks the work of one group. Thread-safe.
class DeviceWork {
 public:
  using Works = std::vector<c10::intrusive_ptr<c10d::Work>>;

  /// Records that the thread's current stream waits for the group's work on the device.
  void note(c10::DeviceType device);
  /// Adds operations for which no stream waits yet. They count as work until they complete.
  void keep(const Works& works);
  /// Returns whether the device has done all work; false if that cannot be determined.
  bool is_done();

 private:
  void forget_done();

  std::mutex mutex_;
  std::map<std::pair<c10::DeviceIndex, c10::StreamId>, c10::Event> marks_;  // the latest of each stream
  Works left_;
};

}  // namespace deepspeed::comm
