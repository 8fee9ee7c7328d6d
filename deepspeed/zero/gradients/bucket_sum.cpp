#include "deepspeed/zero/gradients/bucket_sum.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include <c10/core/ScalarType.h>

#include "deepspeed/tensor/scaling.h"
#include "deepspeed/zero/gradients/row_exchange.h"

namespace deepspeed::zero {
namespace {

/// Adds the milliseconds of its lifetime to a total.
class HostTime {
 public:
  explicit HostTime(double& ms) : ms_(ms) {}
  ~HostTime() { ms_ += std::chrono::duration<double, std::milli>(Clock::now() - begin_).count(); }
  HostTime(const HostTime&) = delete;
  HostTime& operator=(const HostTime&) = delete;

 private:
  using Clock = std::chrono::steady_clock;
  double& ms_;
  const Clock::time_point begin_ = Clock::now();
};

}  // namespace

BucketSum::BucketSum(ParamStore& store, const ZeroGroups& ranks, const ReducerOptions& options,
                     const BucketPlan& plan, bool traces_non_finite)
    : store_(store),
      ranks_(ranks),
      options_(options),
      plan_(plan),
      traces_non_finite_(traces_non_finite),
      non_finite_(store) {
  if (options_.is_quantized && ranks_.shard.size() > 1)
    quantized_.emplace(ranks_.node, ranks_.across_nodes, options_.loco);
}

bool BucketSum::sums_for_owners() const { return store_.partitions_states() && options_.keys.reduce_scatter; }

bool BucketSum::travels_by_rows(size_t bucket) const { return plan_.bucket(bucket).kind.by_rows > 0; }

bool BucketSum::puts_sums_elsewhere(size_t bucket) const {
  return sums_for_owners() && ranks_.shard.size() > 1 && !plan_.bucket(bucket).kind.is_quantized;
}

void BucketSum::note_non_finite(size_t bucket, const at::Tensor& values) {
  const Bucket& of = plan_.bucket(bucket);
  if (traces_non_finite_) non_finite_.note(of, plan_.space().gradients(of, values));
}

BucketSum::Works BucketSum::start(size_t bucket, const at::Tensor& values, const comm::OwnSum& own) {
  const HostTime time(host_ms_);
  note_non_finite(bucket, values);
  const at::ScalarType dtype = plan_.bucket(bucket).kind.dtype;
  if (ranks_.shard.size() == 1 || dtype == values.scalar_type()) {
    scale(values, options_.averaging.before);
    return ranks_.shard.size() == 1 ? Works() : start_travelling(bucket, values, own);
  }
  // The product is computed in the dtype with more bits.
  const bool widens = c10::promoteTypes(dtype, values.scalar_type()) == dtype;
  if (!widens) scale(values, options_.averaging.before);
  const at::Tensor travelling = values.to(dtype);
  if (widens) scale(travelling, options_.averaging.before);
  converted_.push_back({values.data_ptr(), travelling});
  return start_travelling(bucket, travelling, own);
}

BucketSum::Works BucketSum::start_travelling(size_t bucket, const at::Tensor& travelling,
                                             const comm::OwnSum& own) {
  if (plan_.bucket(bucket).kind.is_quantized) return {quantized_->start(travelling, bucket)};
  if (!sums_for_owners()) return {ranks_.shard.start_all_reduce(travelling)};
  const std::vector<Interval> owned = plan_.space().owned(plan_.bucket(bucket));
  if (options_.keys.use_multi_rank_bucket_allreduce)
    return {ranks_.shard.start_reduce_to_owners(travelling, owned, own)};
  Works works;
  for (size_t owner = 0; owner < owned.size(); ++owner) {
    if (owned[owner].empty()) continue;
    std::vector<Interval> alone(owned.size());
    alone[owner] = owned[owner];
    const bool is_own = owner == static_cast<size_t>(ranks_.shard.rank());
    works.push_back(ranks_.shard.start_reduce_to_owners(travelling, alone, is_own ? own : comm::OwnSum{}));
  }
  return works;
}

at::Tensor BucketSum::finish(const at::Tensor& values, Works& works) {
  const HostTime time(host_ms_);
  for (comm::Work& work : works) work.wait();
  const auto entry = std::find_if(converted_.begin(), converted_.end(),
                                  [&](const Converted& one) { return one.values == values.data_ptr(); });
  if (entry == converted_.end()) return values;
  at::Tensor sum = std::move(entry->travelling);
  converted_.erase(entry);
  return sum;
}

void BucketSum::sum_by_rows(size_t bucket, const at::Tensor& values) {
  const HostTime time(host_ms_);
  note_non_finite(bucket, values);
  scale(values, options_.averaging.before);
  const Bucket& of = plan_.bucket(bucket);
  const at::Tensor& param = store_.groups()[of.group].params[of.params[0]].tensor;
  sum_rows(ranks_.data, values.view({param.size(0), -1}), of.kind.dtype);
}

void BucketSum::scale_errors(double factor) {
  if (quantized_) quantized_->scale_errors(factor);
}

NamedErrors BucketSum::errors() const { return quantized_ ? quantized_->errors() : NamedErrors(); }

bool BucketSum::load_errors(const NamedErrors& errors) {
  if (!quantized_) return errors.empty();
  std::vector<int64_t> numels;
  for (const Bucket& bucket : plan_.buckets())
    numels.push_back(plan_.space().numel(bucket) / ranks_.shard.size());
  return quantized_->load_errors(errors, numels, store_.options().device());
}

}  // namespace deepspeed::zero
