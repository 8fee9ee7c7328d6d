// Sums buckets of gradients over the ranks that together hold everything once. Each bucket travels in its own
// form.
//
// start() multiplies by averaging.before; the caller multiplies by averaging.after. Dividing before the sum
// keeps 16-bit sums from overflowing. Dividing after it keeps small values.
#pragma once

#include <cstddef>
#include <optional>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>

#include "deepspeed/comm/group/process_group.h"
#include "deepspeed/zero/gradients/buckets/bucket_plan.h"
#include "deepspeed/zero/gradients/non_finite.h"
#include "deepspeed/zero/gradients/quantized_sum.h"
#include "deepspeed/zero/gradients/reducer_options.h"
#include "deepspeed/zero/layout/zero_groups.h"
#include "deepspeed/zero/params/param_store.h"

namespace deepspeed::zero {

/// Sums buckets of gradients over the ranks. Not thread-safe.
class BucketSum {
 public:
  using Works = std::vector<comm::Work>;

  /// traces_non_finite: notes which gradients are not finite before the sum over ranks. The references must
  /// outlive this object.
  BucketSum(ParamStore& store, const ZeroGroups& ranks, const ReducerOptions& options, const BucketPlan& plan,
            bool traces_non_finite);

  /// Starts the sum of a bucket's values, 1-D as the plan's BucketSpace lays them out. Returns what finish()
  /// needs, empty with one rank. own: memory for the sum of this rank's part, in the bucket's dtype, if
  /// puts_sums_elsewhere().
  Works start(size_t bucket, const at::Tensor& values, const comm::OwnSum& own = {});
  /// Waits for a sum and returns it: `values`, or another tensor of the dtype sent.
  at::Tensor finish(const at::Tensor& values, Works& works);
  /// Returns whether start() can put this rank's part of the sum into other memory, `own`.
  bool puts_sums_elsewhere(size_t bucket) const;
  /// Returns whether a rank gets only the sums of elements it owns. If not, it gets all sums.
  bool sums_for_owners() const;
  /// Returns whether the bucket is one parameter whose gradient is sent as its nonzero rows.
  bool travels_by_rows(size_t bucket) const;
  /// Sums a bucket that is sent as rows over all ranks, in place. Waits for the result.
  void sum_by_rows(size_t bucket, const at::Tensor& values);

  /// Returns the milliseconds that the host spent in sums since the last call.
  double take_host_time() { return std::exchange(host_ms_, 0.0); }

  /// Multiplies the kept rounding errors of quantized sums; 0 forgets them.
  void scale_errors(double factor);
  /// Returns whether rounding errors of quantized sums are kept.
  bool keeps_errors() const { return quantized_ && options_.loco; }
  /// Returns the kept rounding errors by name. Tensors are shared; empty before the first sum.
  NamedErrors errors() const;
  /// Loads copies of errors() from a run of equally many ranks. Returns whether they fit the buckets and the
  /// nodes; if not, no errors are kept.
  bool load_errors(const NamedErrors& errors);
  /// Returns the bytes of the kept rounding errors.
  int64_t error_bytes() const { return quantized_ ? quantized_->bytes() : 0; }

  /// Returns the last parameter (in flat order) whose gradient on this rank, before the sum, is not finite.
  /// Returns nothing if all are finite. Waits for the device.
  std::optional<ParamPlace> non_finite_nearest_loss() const { return non_finite_.nearest_loss(); }
  void clear_non_finite() { non_finite_.clear(); }

 private:
  void note_non_finite(size_t bucket, const at::Tensor& values);
  Works start_travelling(size_t bucket, const at::Tensor& travelling, const comm::OwnSum& own);

  struct Converted {
    const void* values;
    at::Tensor travelling;
  };

  ParamStore& store_;
  const ZeroGroups& ranks_;
  const ReducerOptions& options_;
  const BucketPlan& plan_;
  const bool traces_non_finite_;
  std::vector<Converted> converted_;
  std::optional<QuantizedSum> quantized_;
  NonFiniteGradients non_finite_;
  double host_ms_ = 0.0;
};

}  // namespace deepspeed::zero
