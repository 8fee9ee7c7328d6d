#include "deepspeed/zero/gather_bucket.h"

#include <utility>

#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>

namespace deepspeed::zero {

GatherBucket::GatherBucket(const comm::ProcessGroup& group, std::vector<at::Tensor> shards)
    : num_ranks_(group.size()), shards_(std::move(shards)) {
  if (num_ranks_ == 1) return;
  sent_ = shards_.size() == 1 ? shards_.front() : at::cat(shards_);
  received_ = at::empty({num_ranks_ * sent_.numel()}, sent_.options());
  work_ = group.start_all_gather(received_, sent_);
}

at::Tensor GatherBucket::take(size_t index) {
  if (num_ranks_ == 1) return shards_[index];
  work_.wait();
  if (shards_.size() == 1) return received_;
  int64_t begin = 0;
  for (size_t before = 0; before < index; ++before) begin += shards_[before].numel();
  return received_.view({num_ranks_, sent_.numel()})
      .narrow(1, begin, shards_[index].numel())
      .clone(at::MemoryFormat::Contiguous)
      .view({-1});
}

}  // namespace deepspeed::zero
