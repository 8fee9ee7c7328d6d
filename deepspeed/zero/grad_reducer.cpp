#include "deepspeed/zero/grad_reducer.h"

#include <algorithm>
#include <utility>

#include "deepspeed/base/error.h"

namespace deepspeed::zero {
namespace {

std::vector<size_t> params_per_group(const ParamStore& store) {
  std::vector<size_t> counts;
  for (const StoredGroup& group : store.groups()) counts.push_back(group.params.size());
  return counts;
}

}  // namespace

GradReducer::GradReducer(ParamStore& store, comm::ProcessGroup group, ReducerOptions options)
    : store_(store),
      group_(std::move(group)),
      options_(std::move(options)),
      buckets_(make_buckets(store.layouts(), options_.bucket_numel)),
      order_(buckets_, params_per_group(store)) {}

comm::Work GradReducer::start_sum_of(const Bucket& bucket, const at::Tensor& travelling) const {
  if (!options_.to_owners) return group_.start_all_reduce(travelling);
  std::vector<Interval> owned;
  for (int rank = 0; rank < group_.size(); ++rank) {
    const Interval common = intersect(store_.groups()[bucket.group].layout.partition(rank), bucket.in_flat);
    owned.push_back({common.begin - bucket.in_flat.begin, common.end - bucket.in_flat.begin});
  }
  return group_.start_reduce_to_owners(travelling, owned);
}

comm::Work GradReducer::start_sum(const Bucket& bucket, const at::Tensor& values) {
  if (options_.averaging.before != 1.0) values.mul_(options_.averaging.before);
  if (options_.communication_dtype == values.scalar_type()) return start_sum_of(bucket, values);
  const at::Tensor travelling = values.to(options_.communication_dtype);
  converted_.push_back({values.data_ptr(), travelling});
  return start_sum_of(bucket, travelling);
}

void GradReducer::finish_sum(const at::Tensor& values, comm::Work& work) {
  work.wait();
  const auto entry = std::find_if(converted_.begin(), converted_.end(),
                                  [&](const Converted& one) { return one.values == values.data_ptr(); });
  if (entry == converted_.end()) return;
  values.copy_(entry->travelling);
  converted_.erase(entry);
}

void GradReducer::scale_after(const at::Tensor& tensor) const {
  if (options_.averaging.after != 1.0) tensor.mul_(options_.averaging.after);
}

void GradReducer::refuse_late_gradient(size_t group, size_t param) const {
  raise<UsageError>(
      "zero.grad_reducer", "parameter '", store_.groups()[group].params[param].name,
      "' received another gradient after its bucket was reduced: it is used in a part of the graph that "
      "runs its own backward. Set zero_optimization.overlap_comm to false and use stage 0 or 1");
}

}  // namespace deepspeed::zero
