// What a group gave a device, and whether it is done: a wait for an operation of NCCL holds the current
// stream alone. Internal to this folder.
#pragma once

#include <map>
#include <mutex>
#include <utility>
#include <vector>

#include <c10/core/Event.h>
#include <torch/csrc/distributed/c10d/Work.hpp>

namespace deepspeed::comm {

/// Any thread may call.
class DeviceWork {
 public:
  using Works = std::vector<c10::intrusive_ptr<c10d::Work>>;

  /// Notes that the thread's current stream waits for what the device was given.
  void note(c10::DeviceType device);
  /// Takes operations that nobody has waited for.
  void keep(const Works& works);
  /// Says whether the device has done all of it; false where that cannot be asked any more.
  bool is_done();

 private:
  void forget_done();

  std::mutex mutex_;
  std::map<std::pair<c10::DeviceIndex, c10::StreamId>, c10::Event> marks_;  // the latest of each stream
  Works left_;
};

}  // namespace deepspeed::comm
