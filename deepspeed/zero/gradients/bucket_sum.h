// Sums buckets of gradients over the ranks that together hold everything once, in the form in which each
// bucket travels.
//
// start() applies averaging.before, the caller applies averaging.after. Dividing before the sum keeps sums in
// 16 bits from overflowing, dividing after it keeps small values.
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

/// It is not thread-safe.
class BucketSum {
 public:
  using Works = std::vector<comm::Work>;

  /// traces_non_finite: notes which gradients are not finite before they are added to others'. The references
  /// must outlive it.
  BucketSum(ParamStore& store, const ZeroGroups& ranks, const ReducerOptions& options, const BucketPlan& plan,
            bool traces_non_finite);

  /// Starts the sum of a bucket's values, which the plan's space has laid out: 1-D. own: where the sum of
  /// this rank's part goes, in the dtype in which the bucket travels, where puts_sums_elsewhere().
  Works start(size_t bucket, const at::Tensor& values, const comm::OwnSum& own = {});
  /// Waits for the sum. Returns the values, or where it travelled in another dtype, the sum in that.
  at::Tensor finish(const at::Tensor& values, Works& works);
  /// Whether the sum of a bucket can put this rank's part somewhere else.
  bool puts_sums_elsewhere(size_t bucket) const;
  /// Whether each rank gets the sum of its own elements alone; else that of all.
  bool sums_for_owners() const;
  /// Whether the bucket is one parameter that travels by its touched rows.
  bool travels_by_rows(size_t bucket) const;
  /// Sums a bucket that travels by rows over all ranks, and waits.
  void sum_by_rows(size_t bucket, const at::Tensor& values);

  /// Returns the milliseconds that the host has spent in sums since the last call.
  double take_host_time() { return std::exchange(host_ms_, 0.0); }

  /// Multiplies what quantized sums have kept of gradients for later ones; 0 forgets it.
  void scale_errors(double factor);
  /// Whether something is kept so.
  bool keeps_errors() const { return quantized_ && options_.loco; }
  /// Returns it by name; shared, empty before the first sum.
  NamedErrors errors() const;
  /// Takes copies of errors() of a run with as many ranks. Returns whether they fit the buckets and the
  /// nodes; where not, nothing is kept.
  bool load_errors(const NamedErrors& errors);
  /// Bytes of what is kept.
  int64_t error_bytes() const { return quantized_ ? quantized_->bytes() : 0; }

  /// The parameter whose gradient was not finite on this rank, the nearest to the loss where there are
  /// several. Waits for the device.
  std::optional<ParamPlace> first_non_finite() const { return non_finite_.first(); }
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
