#include "deepspeed/random/rng_tracker.h"

#include <exception>
#include <utility>

#include "deepspeed/base/error.h"
#include "deepspeed/base/log.h"
#include "deepspeed/device/accelerator/current_device.h"
#include "deepspeed/device/accelerator/rng.h"

namespace deepspeed {
namespace {

constexpr uint64_t kModelParallelOffset = 2718;

bool is_on_cuda() { return device::num_cuda_devices() > 0; }

at::Tensor current_state() { return is_on_cuda() ? device::cuda_rng_state() : device::cpu_rng_state(); }

void set_current_state(const at::Tensor& state) {
  if (is_on_cuda()) {
    device::set_cuda_rng_state(state);
  } else {
    device::set_cpu_rng_state(state);
  }
}

}  // namespace

CudaRNGStatesTracker::Fork::Fork(CudaRNGStatesTracker& tracker, std::string name)
    : tracker_(tracker), name_(std::move(name)) {
  const auto found = tracker_.states_.find(name_);
  if (found == tracker_.states_.end()) raise<UsageError>("cuda rng state ", name_, " is not added");
  outside_ = current_state();
  set_current_state(found->second);
}

CudaRNGStatesTracker::Fork::~Fork() {
  try {
    tracker_.states_[name_] = current_state();
    set_current_state(outside_);
  } catch (const std::exception& error) {
    log::error("[random] the generator's state could not be put back: ", error.what());
  }
}

void CudaRNGStatesTracker::reset() {
  states_.clear();
  seeds_.clear();
}

void CudaRNGStatesTracker::add(const std::string& name, uint64_t seed) {
  if (seeds_.contains(seed)) raise<UsageError>("seed ", seed, " already exists");
  if (states_.contains(name)) raise<UsageError>("cuda rng state ", name, " already exists");
  seeds_.insert(seed);
  const at::Tensor outside = current_state();
  {
    const device::SeededScope scope(seed);
    states_[name] = current_state();
  }
  set_current_state(outside);
}

CudaRNGStatesTracker& get_cuda_rng_tracker() {
  static CudaRNGStatesTracker tracker;
  return tracker;
}

void model_parallel_cuda_manual_seed(uint64_t seed, int model_parallel_rank) {
  if (model_parallel_rank < 0)
    raise<UsageError>("model_parallel_rank is ", model_parallel_rank, ", expected 0 or more");
  get_cuda_rng_tracker().reset();
  device::seed_generators(seed);
  get_cuda_rng_tracker().add(kModelParallelRng, seed + kModelParallelOffset + uint64_t(model_parallel_rank));
}

void model_parallel_reconfigure_tp_seed(uint64_t seed, int model_parallel_rank) {
  model_parallel_cuda_manual_seed(seed, model_parallel_rank);
}

}  // namespace deepspeed
