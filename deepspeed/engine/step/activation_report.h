// Says in the log how much memory activations take: what a step keeps of its forwards for the backward.
#pragma once

#include <memory>

#include "deepspeed/activation/keep/activation_meter.h"

namespace deepspeed {

struct ActivationReportOptions {
  bool is_on = true;        // on this rank
  bool every_step = false;  // else the first step alone
};

/// Counts the activations of the first step of a training, or of all steps, and logs the most that were kept
/// at a time. Forwards that are not counted cost nothing.
class ActivationReport {
 public:
  explicit ActivationReport(const ActivationReportOptions& options);

  /// Counts what this thread's forwards keep while the result lives; nothing where no report is to come.
  std::unique_ptr<activation::CountActivations> count_forward() const;
  /// Ends a step: logs its figures, once all forwards and backwards of it are done.
  void end_step();

 private:
  bool every_step_;
  std::shared_ptr<activation::ActivationMeter> meter_;  // null: no report is to come
};

}  // namespace deepspeed
