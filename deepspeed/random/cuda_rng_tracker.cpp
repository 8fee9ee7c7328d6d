#include "deepspeed/random/cuda_rng_tracker.h"

#include <exception>
#include <utility>

#include "deepspeed/base/error.h"
#include "deepspeed/base/log.h"
#include "deepspeed/device/accelerator/current_device.h"
#include "deepspeed/device/accelerator/rng.h"

namespace deepspeed {
namespace {

constexpr uint64_t kModelParallelOffset = 2718;  // the value in DeepSpeed and Megatron

uint64_t model_parallel_seed(uint64_t seed, int rank) {
  if (rank < 0) raise<UsageError>("the model-parallel rank is ", rank, ", expected 0 or more");
  return seed + kModelParallelOffset + static_cast<uint64_t>(rank);
}

// Returns the state of the computing device's default generator, a byte tensor on the CPU. The device is the
// current CUDA device, or the CPU if the process uses none.
at::Tensor accelerator_rng_state() {
  return device::num_cuda_devices() > 0 ? device::cuda_rng_state() : device::cpu_rng_state();
}

void set_accelerator_rng_state(const at::Tensor& state) {
  device::num_cuda_devices() > 0 ? device::set_cuda_rng_state(state) : device::set_cpu_rng_state(state);
}

at::Tensor state_at_seed(uint64_t seed) {
  const device::SeededScope scope(seed);
  return accelerator_rng_state();
}

}  // namespace

CudaRNGStatesTracker::Fork::Fork(CudaRNGStatesTracker& tracker, std::string name)
    : tracker_(tracker), name_(std::move(name)) {
  const at::Tensor state = tracker.state_of(name_);
  default_state_ = accelerator_rng_state();
  set_accelerator_rng_state(state);
}

CudaRNGStatesTracker::Fork::~Fork() {
  try {
    tracker_.keep(name_, accelerator_rng_state());
    set_accelerator_rng_state(default_state_);
  } catch (const std::exception& error) {
    log::error("random.cuda_rng_tracker: the generator's state could not be put back: ", error.what());
  }
}

void CudaRNGStatesTracker::reset() {
  const std::lock_guard lock(mutex_);
  states_.clear();
  seeds_.clear();
}

CudaRNGStatesTracker::States CudaRNGStatesTracker::get_states() const {
  const std::lock_guard lock(mutex_);
  return states_;
}

void CudaRNGStatesTracker::set_states(States states) {
  const std::lock_guard lock(mutex_);
  states_ = std::move(states);
}

void CudaRNGStatesTracker::add(const std::string& name, uint64_t seed) {
  const std::lock_guard lock(mutex_);
  if (seeds_.contains(seed)) {
    raise<UsageError>("seed ", seed, " already exists in the tracker of random states; give stream '", name,
                      "' another, or call reset() before");
  }
  if (states_.contains(name)) {
    raise<UsageError>("cuda rng state ", name, " already exists; fork() it, or call reset() before");
  }
  states_[name] = state_at_seed(seed);
  seeds_.insert(seed);
}

CudaRNGStatesTracker::Fork CudaRNGStatesTracker::fork(const std::string& name) { return Fork(*this, name); }

at::Tensor CudaRNGStatesTracker::state_of(const std::string& name) const {
  const std::lock_guard lock(mutex_);
  const auto found = states_.find(name);
  if (found == states_.end()) {
    raise<UsageError>("cuda rng state ", name, " is not added; call add(\"", name,
                      "\", seed) or model_parallel_cuda_manual_seed() before fork()");
  }
  return found->second;
}

void CudaRNGStatesTracker::keep(const std::string& name, at::Tensor state) {
  const std::lock_guard lock(mutex_);
  states_[name] = std::move(state);
}

CudaRNGStatesTracker& get_cuda_rng_tracker() {
  static auto& tracker = *new CudaRNGStatesTracker;
  return tracker;
}

void model_parallel_cuda_manual_seed(uint64_t seed, int model_parallel_rank) {
  const uint64_t own_seed = model_parallel_seed(seed, model_parallel_rank);
  auto& tracker = get_cuda_rng_tracker();
  tracker.reset();
  const at::Tensor cpu_state = device::cpu_rng_state();
  device::seed_generators(seed);
  if (device::num_cuda_devices() > 0) device::set_cpu_rng_state(cpu_state);  // dropout draws on the device
  tracker.add(kModelParallelRng, own_seed);
}

void model_parallel_reconfigure_tp_seed(uint64_t seed, int model_parallel_rank) {
  const at::Tensor state = state_at_seed(model_parallel_seed(seed, model_parallel_rank));
  auto& tracker = get_cuda_rng_tracker();
  auto states = tracker.get_states();
  states[kModelParallelRng] = state;
  tracker.set_states(std::move(states));
}

}  // namespace deepspeed
