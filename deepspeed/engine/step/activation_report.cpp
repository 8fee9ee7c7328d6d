#include "deepspeed/engine/step/activation_report.h"

#include <cmath>
#include <cstdint>
#include <string>

#include <c10/core/GradMode.h>

#include "deepspeed/base/error.h"
#include "deepspeed/base/log.h"

namespace deepspeed {
namespace {

/// Formats bytes with about three digits: "12.3 MB", "640 kB".
std::string size_text(int64_t bytes) {
  const bool is_large = bytes >= 1000000;
  const double value = double(bytes) / (is_large ? 1e6 : 1e3);
  return message(value < 100 ? std::round(10 * value) / 10 : std::round(value), is_large ? " MB" : " kB");
}

}  // namespace

ActivationReport::ActivationReport(const ActivationReportOptions& options) : every_step_(options.every_step) {
  if (options.is_on) meter_ = std::make_shared<activation::ActivationMeter>();
}

std::unique_ptr<activation::CountActivations> ActivationReport::count_forward() const {
  if (!meter_ || !c10::GradMode::is_enabled()) return nullptr;
  return std::make_unique<activation::CountActivations>(meter_);
}

void ActivationReport::end_step() {
  if (!meter_) return;
  if (meter_->peak_bytes() > 0) {
    log::info("[engine] activations that a step keeps for backward: at most ",
              size_text(meter_->peak_bytes()), " at a time, and on the host ",
              size_text(meter_->peak_host_bytes()));
  }
  if (every_step_) {
    meter_->reset_peak();
  } else {
    meter_.reset();
  }
}

}  // namespace deepspeed
