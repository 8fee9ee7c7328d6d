#include "deepspeed/profile/throughput.h"

#include "deepspeed/device/accelerator/current_device.h"

namespace deepspeed::profile {
namespace {

constexpr int64_t kStepsLeftOut = 2;

}  // namespace

Throughput::Clock::time_point Throughput::now() const {
  if (synchronized_) device::synchronize();
  return Clock::now();
}

void Throughput::add_time() {
  if (!running_since_) return;
  const Clock::time_point end = now();
  const double seconds = std::chrono::duration<double>(end - *running_since_).count();
  all_.seconds += seconds;
  last_.seconds += seconds;
  running_since_ = end;
}

void Throughput::end_step(int64_t samples) {
  ++num_steps_;
  if (num_steps_ == kStepsLeftOut) running_since_ = now();
  if (num_steps_ <= kStepsLeftOut) return;
  all_.samples += samples;
  last_.samples += samples;
}

void Throughput::pause() {
  add_time();
  running_since_.reset();
}

void Throughput::resume() {
  if (num_steps_ >= kStepsLeftOut && !running_since_) running_since_ = now();
}

std::optional<SampleRates> Throughput::read() {
  if (num_steps_ <= kStepsLeftOut) return std::nullopt;
  add_time();
  const SampleRates rates{all_.rate(), last_.rate()};
  last_ = {};
  return rates;
}

}  // namespace deepspeed::profile
