#include "deepspeed/engine/data/dataloader.h"

#include "deepspeed/device/threads/worker_threads.h"

namespace deepspeed {

BatchThreads::BatchThreads(int count) : threads_(std::make_unique<device::WorkerThreads>(count)) {}
BatchThreads::~BatchThreads() = default;
void BatchThreads::add(std::function<void()> task) { threads_->add(std::move(task)); }

}  // namespace deepspeed
