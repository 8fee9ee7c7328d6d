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

void Connection::abort() {
  try {
    group_->abort();
  } catch (const std::exception&) {
    // A connection that is broken already needs no abort.
  }
  if (direct_) direct_->abort();
}

}  // namespace deepspeed::comm
