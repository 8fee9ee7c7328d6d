#include "deepspeed/comm/backends/connection.h"

#include <exception>
#include <utility>

#include "deepspeed/comm/backends/shm/shm_backend.h"
#include "deepspeed/comm/backends/shm/start_shared.h"

namespace deepspeed::comm {

Connection::Connection(const Backend& backend, c10::intrusive_ptr<c10d::ProcessGroup> group,
                       std::chrono::milliseconds timeout)
    : group_(std::move(group)), timeout_(timeout) {
  const auto of_cpu = group_->getBackend(at::kCPU);
  if (auto* const shared = dynamic_cast<ShmBackend*>(of_cpu.get())) {
    shared_ = &shared->exchange();
  } else if (cpu_backend_of(backend).meets_by_tags) {
    direct_ = std::make_unique<DirectExchange>(of_cpu, timeout);
  }
}

Started Connection::start(const Operation& operation, at::DeviceType device, CallHistory::Progress call) {
  if (device == at::kCPU && shared_ != nullptr)
    return {{start_shared(*shared_, operation, call.chain)}, nullptr};
  const auto backend = group_->getBackend(device);
  auto* const direct = device == at::kCPU ? direct_.get() : nullptr;
  return start_on({*backend, direct, direct_tag(call.number, fingerprint(call.chain)), timeout_}, operation);
}

std::string Connection::failure_of_device() const {
  for (const c10::Device& device : group_->getDeviceTypes()) {
    if (device.is_cpu()) continue;
    switch (group_->getBackend(device.type())->getError()) {
      case c10d::ErrorType::SUCCESS:
        continue;
      case c10d::ErrorType::TIMEOUT:
        return "an operation of the device took longer than the timeout";
      case c10d::ErrorType::COMM_ERROR:
        return "an operation of the device failed";
      case c10d::ErrorType::REMOTE_ERROR:
        return "an operation of the device failed on another rank";
    }
  }
  return "";
}

void Connection::shutdown() {
  for (const c10::Device& device : group_->getDeviceTypes()) {
    const auto backend = group_->getBackend(device.type());
    try {
      // Gloo's shutdown() does not wait either.
      device.is_cpu() ? backend->abort() : backend->shutdown();
    } catch (const std::exception&) {
      // A broken backend needs no shutdown.
    }
  }
  if (direct_) direct_->abort();
}

void Connection::abort() {
  try {
    group_->abort();
  } catch (const std::exception&) {
    // A broken connection needs no abort.
  }
  if (direct_) direct_->abort();
}

}  // namespace deepspeed::comm
