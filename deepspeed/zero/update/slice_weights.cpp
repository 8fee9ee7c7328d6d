#include "deepspeed/zero/update/slice_weights.h"

namespace deepspeed::zero {

SliceWeights::SliceWeights(const ParamStore& store, size_t group, const Interval& interval)
    : store_(store), group_(group), interval_(interval) {
  const StoredGroup& stored = store.groups()[group];
  if (stored.flat.defined()) {
    memory_ = stored.flat.narrow(0, interval.begin, interval.numel());
    return;
  }
  const ShardLayout& layout = *store.shards(group);
  for (size_t param = 0; param < stored.params.size(); ++param) {
    const Interval place = layout.place(param);
    if (place.begin < interval.begin || place.end > interval.end) continue;
    if (const auto shard = store.shard(group, param))
      shards_.push_back({{place.begin - interval.begin, place.end - interval.begin}, shard});
  }
}

void SliceWeights::read(const Interval& part, const at::Tensor& values) const {
  if (memory_.defined()) {
    values.copy_(memory_.narrow(0, part.begin, part.numel()));
    return;
  }
  for (const Placed& placed : shards_) {
    const Interval common = intersect(placed.in_slice, part);
    if (common.empty()) continue;
    placed.shard->read(values.narrow(0, common.begin - part.begin, common.numel()));
  }
}

void SliceWeights::write(const at::Tensor& values) const {
  if (memory_.defined()) {
    wait_for_reads();
    memory_.copy_(values);
    return;
  }
  for (const Placed& placed : shards_)
    placed.shard->start_write(values.narrow(0, placed.in_slice.begin, placed.in_slice.numel()));
}

}  // namespace deepspeed::zero
