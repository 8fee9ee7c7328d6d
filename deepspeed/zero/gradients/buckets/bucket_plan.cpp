#include "deepspeed/zero/gradients/buckets/bucket_plan.h"

#include <algorithm>
#include <utility>

namespace deepspeed::zero {
namespace {

// With smaller buckets, more launches cost more than the smaller buffers save.
constexpr int64_t kLeastBucket = int64_t{2} << 20;
constexpr int64_t kLeastBuckets = 24;  // for a large enough model

/// Returns how many elements a bucket holds: at most `most`, which the config allows. A model is cut into
/// enough buckets that the first ones travel during backward, and buffers are small compared with the model.
int64_t bucket_numel(const ParamStore& store, int64_t most) {
  int64_t all = 0;
  for (const FlatLayout& layout : store.layouts()) all += layout.numel();
  return std::min(most, std::max(kLeastBucket, all / kLeastBuckets));
}

std::vector<size_t> params_per_group(const ParamStore& store) {
  std::vector<size_t> counts;
  for (const StoredGroup& group : store.groups()) counts.push_back(group.params.size());
  return counts;
}

// Gradients of fp64 parameters travel in fp64, unless the config names a 16-bit dtype.
at::ScalarType travelling_dtype(const StoredGroup& group, const NamedTensor& param,
                                const ReducerOptions& options) {
  const bool is_double = group.dtype == at::kDouble;
  const auto own = options.param_communication_dtypes.find(param.tensor.unsafeGetTensorImpl());
  if (own != options.param_communication_dtypes.end() && !is_double) return own->second;
  return is_double && options.communication_dtype == at::kFloat ? at::kDouble : options.communication_dtype;
}

std::vector<std::vector<BucketKind>> bucket_kinds(const ParamStore& store, const ReducerOptions& options) {
  std::vector<std::vector<BucketKind>> kinds;
  size_t num_by_rows = 0;
  for (const StoredGroup& group : store.groups()) {
    std::vector<BucketKind>& of_group = kinds.emplace_back();
    for (const NamedTensor& param : group.params) {
      BucketKind& kind = of_group.emplace_back();
      kind.dtype = travelling_dtype(group, param, options);
      if (options.by_rows.contains(param.tensor.unsafeGetTensorImpl())) {
        kind.by_rows = ++num_by_rows;
      } else {
        // Biases and norm weights are a small share of the data, and sensitive.
        kind.is_quantized = options.is_quantized && kind.dtype != at::kDouble && param.tensor.dim() > 1;
      }
      const auto unit = options.units.find(param.tensor.unsafeGetTensorImpl());
      if (unit != options.units.end()) kind.unit = unit->second;
    }
  }
  return kinds;
}

}  // namespace

BucketPlan::BucketPlan(const ParamStore& store, const comm::ProcessGroup& shard_group,
                       const ReducerOptions& options, std::vector<Interval> owned)
    : store_(store),
      options_(options),
      space_(make_bucket_space(store, shard_group, std::move(owned))),
      buckets_(make(bucket_numel(store, options.keys.reduce_bucket_size))),
      order_(make_order()) {}

std::vector<Bucket> BucketPlan::make(int64_t numel) const {
  return make_buckets(store_.layouts(), options_.keys.contiguous_gradients ? numel : 1,
                      bucket_kinds(store_, options_));
}

LaunchOrder BucketPlan::make_order() const {
  std::vector<bool> is_gated;
  for (const Bucket& bucket : buckets_) is_gated.push_back(bucket.kind.unit > 0);
  return {buckets_, params_per_group(store_), std::move(is_gated)};
}

void BucketPlan::lay_out(int64_t numel) {
  buckets_ = make(numel);
  order_ = make_order();
}

void BucketPlan::open_gates(size_t unit) {
  for (size_t index = 0; index < buckets_.size(); ++index) {
    if (buckets_[index].kind.unit == unit) order_.open_gate(index);
  }
}

}  // namespace deepspeed::zero
