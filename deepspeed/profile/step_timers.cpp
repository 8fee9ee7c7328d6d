#include "deepspeed/profile/step_timers.h"

#include <iomanip>
#include <sstream>
#include <utility>

#include "deepspeed/device/accelerator/current_device.h"

namespace deepspeed::profile {
namespace {

constexpr std::array<const char*, kNumStepParts> kPartNames = {"fwd", "bwd", "bwd_inner", "bwd_allreduce",
                                                               "step"};

std::chrono::steady_clock::time_point now_on_device() {
  device::synchronize();
  return std::chrono::steady_clock::now();
}

}  // namespace

StepTimers::Scope::Scope(StepTimers* timers, StepPart part) : timers_(timers), part_(part) {
  if (timers_ != nullptr) start_ = now_on_device();
}

StepTimers::Scope::~Scope() {
  if (timers_ == nullptr) return;
  const double ms = std::chrono::duration<double, std::milli>(now_on_device() - start_).count();
  for (Sums* sums : {&timers_->micro_step_, &timers_->global_, &timers_->update_})
    (*sums)[static_cast<size_t>(part_)] += ms;
}

void StepTimers::move(StepPart from, StepPart to, double ms) {
  for (Sums* sums : {&micro_step_, &global_, &update_}) {
    (*sums)[static_cast<size_t>(from)] -= ms;
    (*sums)[static_cast<size_t>(to)] += ms;
  }
}

std::string StepTimers::take(Sums& sums, const char* suffix) {
  std::ostringstream line;
  line << "time (ms)" << std::fixed << std::setprecision(2);
  for (size_t part = 0; part < sums.size(); ++part) {
    const std::string name = std::string(kPartNames[part]) + suffix;
    line << " | " << name << ": " << sums[part];
    last_[name] = sums[part];
  }
  sums.fill(0.0);
  return line.str();
}

std::string StepTimers::micro_step_line() { return take(micro_step_, "_microstep"); }
std::string StepTimers::global_line() { return take(global_, ""); }

std::array<double, kNumStepParts> StepTimers::take_update() { return std::exchange(update_, {}); }

}  // namespace deepspeed::profile
