// 0/1 Adam acts at intervals that grow: it renews the second moment ever more rarely, and later lets ranks
// exchange ever more rarely (Lu et al., "Maximizing Communication Efficiency for Large-scale Training via 0/1
// Adam", 2022). Here is which step does what.
#pragma once

#include <cstdint>

namespace deepspeed::optim {

/// Holds the arguments of DeepSpeed's names.
struct ZeroOneOptions {
  int64_t var_freeze_step = 100000;   // the last step that may renew the second moment
  int64_t var_update_scaler = 16;     // renewals after which their interval doubles
  int64_t local_step_scaler = 32678;  // steps after which the interval of exchanges doubles
  int64_t local_step_clipper = 16;    // the longest interval of exchanges
};

/// Counts steps, from 1 on, and says what the next one does. Step t renews the second moment where t is a
/// multiple of the interval of renewals; steps behind var_freeze_step are local, and end with an exchange
/// where t is a multiple of the interval of exchanges. Both intervals begin at 1.
class ZeroOneIntervals {
 public:
  explicit ZeroOneIntervals(const ZeroOneOptions& options) : options_(options) {}
  /// Stands where `steps` steps have led.
  ZeroOneIntervals(const ZeroOneOptions& options, int64_t steps);

  int64_t steps() const { return steps_; }
  /// Says whether the next step works on this rank's own gradients, and leaves the second moment.
  bool is_local() const { return steps_ >= options_.var_freeze_step; }
  /// Says whether the next step is the first of these.
  bool is_first_local() const { return steps_ == options_.var_freeze_step; }
  /// Says whether the next step renews the second moment, by the exact mean of the gradients.
  bool renews_variance() const { return !is_local() && (steps_ + 1) % variance_interval_ == 0; }
  /// Says whether the next step is local, and ends with an exchange of what local steps have changed.
  bool exchanges() const { return is_local() && (steps_ + 1) % local_interval_ == 0; }
  /// Counts the step as made.
  void advance();

 private:
  ZeroOneOptions options_;
  int64_t steps_ = 0;
  int64_t variance_interval_ = 1, renewals_ = 0;  // renewals since the interval doubled
  int64_t local_interval_ = 1, local_steps_ = 0;  // steps since the interval doubled
};

}  // namespace deepspeed::optim
