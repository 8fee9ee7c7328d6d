#include "deepspeed/comm/backends/device_work.h"

#include <algorithm>
#include <exception>

#include <c10/core/impl/VirtualGuardImpl.h>

#include "deepspeed/device/graphs/device_graph.h"

namespace deepspeed::comm {

void DeviceWork::note(c10::DeviceType device) {
  if (device::DeviceGraph::is_capturing()) return;  // events recorded in a capture cannot be queried
  const c10::impl::VirtualGuardImpl guard(device);
  const c10::Stream stream = guard.getStream(guard.getDevice());
  const std::lock_guard lock(mutex_);
  const auto [mark, is_new] = marks_.try_emplace({stream.device_index(), stream.id()}, device);
  mark->second.record(stream);
  forget_done();
}

void DeviceWork::keep(const Works& works) {
  const std::lock_guard lock(mutex_);
  left_.insert(left_.end(), works.begin(), works.end());
}

void DeviceWork::forget_done() {
  std::erase_if(left_, [](const auto& work) { return work->isCompleted(); });
}

bool DeviceWork::is_done() {
  const std::lock_guard lock(mutex_);
  try {
    forget_done();
    return left_.empty() && std::ranges::all_of(marks_, [](const auto& mark) { return mark.second.query(); });
  } catch (const std::exception&) {
    return false;  // the device is broken, or gone because the process is ending
  }
}

}  // namespace deepspeed::comm
