// Logs how much memory activations take: what the forwards of a step keep for backward.
#pragma once

#include <memory>

#include "deepspeed/activation/keep/activation_meter.h"

namespace deepspeed {

struct ActivationReportOptions {
  bool is_on = true;        // report on this rank
  bool every_step = false;  // false: only the first step
};

/// Counts the activations of the first step, or of all steps, and logs their peak. Forwards that are not
/// counted cost nothing.
class ActivationReport {
 public:
  explicit ActivationReport(const ActivationReportOptions& options);

  /// Counts the activations that this thread's forwards keep while the result exists. Returns null if no
  /// report is due.
  std::unique_ptr<activation::CountActivations> count_forward() const;
  /// Ends a step: logs its figures. Call it after all its forwards and backwards.
  void end_step();

 private:
  bool every_step_;
  std::shared_ptr<activation::ActivationMeter> meter_;  // null: no report is due
};

}  // namespace deepspeed
