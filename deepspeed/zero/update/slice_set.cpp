// The order of events: groups are cut into slices, each gets its plan, and masters are made from the weights.
// Changes of weights from outside are noted, and masters follow them before they are read.
#include "deepspeed/zero/update/slice_set.h"

#include <algorithm>
#include <utility>

#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/where.h>

#include "deepspeed/zero/update/cut_of_store.h"
#include "deepspeed/zero/update/cut_shards.h"
#include "deepspeed/zero/update/step_cut.h"

namespace deepspeed::zero {
namespace {

constexpr int64_t kNumelAtOnce = int64_t{1} << 20;

}  // namespace

SliceSet::SliceSet(ParamStore& store, optim::Optimizer& optimizer, const comm::ProcessGroup& shard_group,
                   const StepOptions& options, std::optional<at::ScalarType> accumulation_dtype)
    : store_(store),
      optimizer_(optimizer),
      shard_group_(shard_group),
      options_(options),
      accumulation_dtype_(accumulation_dtype) {
  for (size_t index = 0; index < store_.groups().size(); ++index) add_slices(index);
  if (options_.offload.device == OffloadDevice::kNvme) {
    swapper_ = std::make_unique<StateSwapper>(options_.offload.swapper,
                                              [this](size_t index) { return swapped_tensors(index); });
  }
  make_masters();
}

std::vector<ParamPiece> SliceSet::pieces(size_t group, const Interval& part) const {
  const Interval interval{owned_[group].begin + part.begin, owned_[group].begin + part.end};
  const ShardLayout* const shards = store_.shards(group);
  return shards != nullptr ? shards->pieces(interval, shard_group_.rank())
                           : store_.groups()[group].layout.pieces(interval);
}

std::vector<Interval> SliceSet::cuts_of(size_t group) const {
  const Interval all{0, owned_[group].numel()};
  if (const ShardLayout* const shards = store_.shards(group)) {
    std::vector<Interval> cuts;
    for (const SubGroup& sub_group : shards->sub_groups()) cuts.push_back(sub_group.in_flat);
    return cuts;
  }
  if (!options_.offload.is_on() || !optimizer_.is_elementwise()) return {all};
  return equal_pieces(all.numel(), options_.offload.piece_numel);
}

void SliceSet::add_slices(size_t group) {
  const StoredGroup& stored = store_.groups()[group];
  const ShardLayout* const shards = store_.shards(group);
  owned_.push_back(shards != nullptr            ? Interval{0, shards->flat_numel()}
                   : store_.partitions_states() ? stored.layout.partition(shard_group_.rank())
                                                : Interval{0, stored.layout.padded_numel()});
  const std::vector<Interval> cuts = cuts_of(group);
  const size_t num_offloaded =
      options_.offload.is_on() ? count_within(cuts, options_.offload.ratio) : size_t{0};
  for (size_t index = 0; index < cuts.size(); ++index) {
    Slice& slice = slices_.emplace_back();
    slice.plan = plan_of(group, /*is_offloaded=*/index < num_offloaded);
    // A group's first slice has the group's number.
    slice.flat.id = index == 0 ? group : store_.groups().size() + slices_.size();
    fill_in(slice, group, cuts[index]);
  }
}

void SliceSet::fill_in(Slice& slice, size_t group, const Interval& interval) {
  const StoredGroup& stored = store_.groups()[group];
  slice.interval = interval;
  for (const ParamPiece& piece : pieces(group, interval)) {
    slice.segments.push_back({static_cast<int64_t>(piece.index), piece.in_interval, piece.offset_in_param,
                              stored.params[piece.index].tensor.sizes().vec()});
  }
  if (store_.partitions_states() && !optimizer_.is_elementwise()) {
    slice.cut = store_.partitions_parameters() ? make_cut_shards(store_, group, interval, shard_group_)
                                               : make_cut_parameters(store_, group, shard_group_);
    slice.flat.cut = slice.cut.get();
  }
  slice.flat.segments = &slice.segments;
  slice.flat.group = group;
  slice.flat.whole = group;
  slice.flat.begin_in_whole = interval.begin;
}

SlicePlan SliceSet::plan_of(size_t group, bool is_offloaded) const {
  return plan_slice({.dtype = store_.groups()[group].dtype,
                     .home = store_.home(),
                     .model_on_cpu = store_.options().device().is_cpu(),
                     .is_offloaded = is_offloaded,
                     .partitions_gradients = store_.partitions_gradients(),
                     .accumulation_dtype = accumulation_dtype_},
                    options_);
}

SliceWeights SliceSet::weights_at(const Slice& slice, const Interval& part) const {
  const size_t group = slice.flat.group;
  const int64_t begin = owned_[group].begin;
  return {store_, group, {begin + part.begin, begin + part.end}};
}

at::TensorOptions SliceSet::options_at(const Slice& slice, at::ScalarType dtype) const {
  const at::TensorOptions options = store_.options().dtype(dtype);
  return slice.plan.crosses_memory ? options.device(at::kCPU) : options;
}

void SliceSet::make_masters() {
  for_each(with_masters(), Access::kChange, [&](Slice& slice) {
    const int64_t numel = slice.interval.numel();
    slice.flat.master = at::empty({numel}, options_at(slice, *slice.plan.kept_dtype));
    take_weights(slice, {0, numel});
  });
}

std::vector<size_t> SliceSet::all() const {
  std::vector<size_t> indices(slices_.size());
  for (size_t index = 0; index < indices.size(); ++index) indices[index] = index;
  return indices;
}

bool SliceSet::are_stepped_in_place() const {
  return std::ranges::all_of(slices_, [](const Slice& slice) { return slice.plan.is_at_weights(); });
}

std::vector<size_t> SliceSet::with_masters() const {
  std::vector<size_t> indices = all();
  std::erase_if(indices, [&](size_t index) { return !slices_[index].plan.keeps_masters(); });
  return indices;
}

std::vector<at::Tensor> SliceSet::swapped_tensors(size_t index) const {
  const Slice& slice = slices_[index];
  std::vector<at::Tensor> tensors;
  if (slice.plan.keeps_masters() && slice.flat.master.defined()) tensors.push_back(slice.flat.master);
  for (const auto& [name, tensor] : optimizer_.state(slice.flat.id).tensors) tensors.push_back(tensor);
  return tensors;
}

void SliceSet::for_each(const std::vector<size_t>& indices, Access access,
                        const std::function<void(Slice&)>& work) {
  std::vector<size_t> on_disk;
  for (const size_t index : indices) {
    if (slices_[index].plan.is_on_disk()) {
      on_disk.push_back(index);
    } else {
      work(slices_[index]);
    }
  }
  if (!on_disk.empty()) swapper_->for_each(on_disk, access, [&](size_t index) { work(slices_[index]); });
}

void SliceSet::note_written_weights() {
  const bool is_whole = !store_.partitions_parameters();
  for (size_t group = 0; group < owned_.size(); ++group) {
    for (const size_t param : store_.take_externally_written(group)) {
      if (is_whole && options_.split_masters) continue;
      const Interval place =
          is_whole ? store_.groups()[group].layout.place(param) : store_.shards(group)->place(param);
      for (Slice& slice : slices_) {
        const int64_t begin = owned_[group].begin + slice.interval.begin;
        const Interval common = intersect({begin, begin + slice.interval.numel()}, place);
        if (slice.flat.group == group && slice.plan.keeps_masters() && !common.empty())
          slice.stale.push_back({common.begin - begin, common.end - begin});
      }
    }
  }
}

void SliceSet::take_weights(Slice& slice, const Interval& part) const {
  const at::Tensor master = slice.flat.master.narrow(0, part.begin, part.numel());
  if (options_.split_masters) {
    master.zero_();
  } else {
    weights_of(slice).read(part, master);
  }
}

void SliceSet::follow_weights(Slice& slice, const Interval& part) const {
  if (options_.split_masters) return take_weights(slice, part);
  const SliceWeights source = weights_of(slice);
  // A shard on a disk is read as a whole.
  const int64_t at_once = source.memory().defined() ? kNumelAtOnce : part.numel();
  for (const Interval& piece : equal_pieces(part.numel(), at_once)) {
    const at::Tensor master = slice.flat.master.narrow(0, part.begin + piece.begin, piece.numel());
    const at::Tensor weights = at::empty_like(master);
    source.read({part.begin + piece.begin, part.begin + piece.end}, weights);
    const at::Tensor is_kept = master.to(dtype_of(slice)).to(master.scalar_type()).eq(weights);
    master.copy_(at::where(is_kept, master, weights));
  }
}

void SliceSet::follow_weights(Slice& slice, Access access) const {
  for (const Interval& stale : slice.stale) follow_weights(slice, stale);
  if (access == Access::kChange || !slice.plan.is_on_disk()) slice.stale.clear();
}

at::Tensor SliceSet::copy_of(const SliceWeights& weights, const Slice& slice, int64_t numel) const {
  const at::Tensor copy = empty_weights(slice, numel);
  weights.read({0, numel}, copy);
  return copy;
}

at::Tensor SliceSet::empty_weights(const Slice& slice, int64_t numel) const {
  return at::empty({numel}, options_at(slice, dtype_of(slice)));
}

void SliceSet::write_weights() {
  note_written_weights();
  if (options_.split_masters) return;  // the weights are the masters' upper 16 bits
  for_each(with_masters(), Access::kRead, [&](Slice& slice) {
    follow_weights(slice, Access::kRead);
    weights_of(slice).write(slice.flat.master);
  });
  store_.finish_writes();
}

void SliceSet::read_weights() {
  for_each(with_masters(), Access::kChange, [&](Slice& slice) {
    slice.stale.clear();
    take_weights(slice, {0, slice.interval.numel()});
  });
}

int64_t SliceSet::master_bytes() const {
  int64_t bytes = 0;
  for (const Slice& slice : slices_) {
    if (slice.plan.keeps_masters()) bytes += static_cast<int64_t>(slice.flat.master.nbytes());
  }
  return bytes;
}

}  // namespace deepspeed::zero
