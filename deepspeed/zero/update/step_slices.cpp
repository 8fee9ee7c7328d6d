#include "deepspeed/zero/update/step_slices.h"

#include <algorithm>
#include <utility>

#include <ATen/ops/empty.h>

#include "deepspeed/base/error.h"
#include "deepspeed/kernels/split_master.h"
#include "deepspeed/zero/update/cut_parameters.h"
#include "deepspeed/zero/update/cut_shards.h"
#include "deepspeed/zero/update/step_cut.h"

namespace deepspeed::zero {
namespace {

// The part of `flat`, which lies at `place`, that is common with `part`.
at::Tensor common_part(const at::Tensor& flat, const Interval& place, const Interval& part) {
  if (part.empty()) return flat.narrow(0, 0, 0);
  const Interval common = intersect(place, part);
  return flat.narrow(0, common.begin - place.begin, common.numel());
}

// Adds a slice's part of one flat tensor to what is collected of it: shared where it is all of it.
void collect(const at::Tensor& flat, const StateSlice& slice, const Interval& part, at::Tensor& collected) {
  const at::Tensor own = common_part(flat, slice.interval, part);
  if (!collected.defined()) {
    if (slice.stays_in_memory && own.numel() == part.numel()) {
      collected = own;
      return;
    }
    collected = at::empty({part.numel()}, flat.options());
  }
  if (own.numel() > 0)
    collected.narrow(0, std::max(slice.interval.begin, part.begin) - part.begin, own.numel()).copy_(own);
}

/// State tensors in fp32 and fp64 follow the masters: they may come from a run of another type.
optim::SliceState in_precision_of(optim::SliceState state, at::ScalarType masters) {
  for (auto& [name, tensor] : state.tensors) {
    const at::ScalarType dtype = tensor.scalar_type();
    if (dtype == at::kDouble || (masters == at::kDouble && dtype == at::kFloat)) tensor = tensor.to(masters);
  }
  return state;
}

}  // namespace

StepSlices::StepSlices(ParamStore& store, optim::Optimizer& optimizer, const comm::ProcessGroup& group,
                       const StepOptions& options, std::optional<at::ScalarType> accumulation_dtype)
    : store_(store),
      optimizer_(optimizer),
      group_(group),
      options_(options),
      accumulation_dtype_(accumulation_dtype),
      transfers_(store.options().device(), options.offload.pin_memory,
                 options.offload.is_on() && options.offload.always_copies),
      worker_stream_(store.options().device()) {
  for (size_t index = 0; index < store_.groups().size(); ++index) add_slices(index);
  if (options_.offload.device == OffloadDevice::kNvme) {
    swapper_ = std::make_unique<StateSwapper>(options_.offload.swapper,
                                              [this](size_t index) { return swapped_tensors(index); });
  }
  make_masters();
  if (!options_.offload.super_offload) return;
  make_memory_for_waiting();
  ahead_ = std::make_unique<StepAhead>(options_.offload.worker_cores, store_.options().device());
}

std::vector<ParamPiece> StepSlices::pieces(size_t group, const Interval& part) const {
  const Interval interval{owned_[group].begin + part.begin, owned_[group].begin + part.end};
  const ShardLayout* const shards = store_.shards(group);
  return shards != nullptr ? shards->pieces(interval, group_.rank())
                           : store_.groups()[group].layout.pieces(interval);
}

std::vector<Interval> StepSlices::cuts_of(size_t group) const {
  const Interval all{0, owned_[group].numel()};
  if (const ShardLayout* const shards = store_.shards(group)) {
    std::vector<Interval> cuts;
    for (const SubGroup& sub_group : shards->sub_groups()) cuts.push_back(sub_group.in_flat);
    return cuts;
  }
  if (!options_.offload.is_on() || !optimizer_.is_elementwise()) return {all};
  return equal_pieces(all.numel(), options_.offload.piece_numel);
}

void StepSlices::add_slices(size_t group) {
  const StoredGroup& stored = store_.groups()[group];
  const ShardLayout* const shards = store_.shards(group);
  owned_.push_back(shards != nullptr            ? Interval{0, shards->flat_numel()}
                   : store_.partitions_states() ? stored.layout.partition(group_.rank())
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

void StepSlices::fill_in(Slice& slice, size_t group, const Interval& interval) {
  const StoredGroup& stored = store_.groups()[group];
  slice.interval = interval;
  for (const ParamPiece& piece : pieces(group, interval)) {
    slice.segments.push_back({static_cast<int64_t>(piece.index), piece.in_interval, piece.offset_in_param,
                              stored.params[piece.index].tensor.sizes().vec()});
  }
  if (store_.partitions_states() && !optimizer_.is_elementwise()) {
    slice.cut = store_.partitions_parameters() ? make_cut_shards(store_, group, interval, group_)
                                               : make_cut_parameters(store_, group, group_);
    slice.flat.cut = slice.cut.get();
  }
  slice.flat.segments = &slice.segments;
  slice.flat.group = group;
  slice.flat.whole = group;
  slice.flat.begin_in_whole = interval.begin;
}

SlicePlan StepSlices::plan_of(size_t group, bool is_offloaded) const {
  return plan_slice({.dtype = store_.groups()[group].dtype,
                     .home = store_.home(),
                     .model_on_cpu = store_.options().device().is_cpu(),
                     .is_offloaded = is_offloaded,
                     .partitions_gradients = store_.partitions_gradients(),
                     .accumulation_dtype = accumulation_dtype_},
                    options_);
}

SliceWeights StepSlices::weights_at(const Slice& slice, const Interval& part) const {
  const size_t group = slice.flat.group;
  const int64_t begin = owned_[group].begin;
  return {store_, group, {begin + part.begin, begin + part.end}};
}

at::TensorOptions StepSlices::options_at(const Slice& slice, at::ScalarType dtype) const {
  const at::TensorOptions options = store_.options().dtype(dtype);
  return slice.plan.crosses_memory ? options.device(at::kCPU) : options;
}

void StepSlices::make_masters() {
  for_each(with_masters(), Access::kChange, [&](Slice& slice) {
    const int64_t numel = slice.interval.numel();
    slice.flat.master = at::empty({numel}, options_at(slice, *slice.plan.kept_dtype));
    take_weights(slice, {0, numel});
  });
}

std::vector<size_t> StepSlices::all() const {
  std::vector<size_t> indices(slices_.size());
  for (size_t index = 0; index < indices.size(); ++index) indices[index] = index;
  return indices;
}

std::vector<size_t> StepSlices::with_masters() const {
  std::vector<size_t> indices = all();
  std::erase_if(indices, [&](size_t index) { return !slices_[index].plan.keeps_masters(); });
  return indices;
}

std::vector<at::Tensor> StepSlices::swapped_tensors(size_t index) const {
  const Slice& slice = slices_[index];
  std::vector<at::Tensor> tensors;
  if (slice.plan.keeps_masters() && slice.flat.master.defined()) tensors.push_back(slice.flat.master);
  for (const auto& [name, tensor] : optimizer_.state(slice.flat.id).tensors) tensors.push_back(tensor);
  return tensors;
}

void StepSlices::for_each(const std::vector<size_t>& indices, Access access,
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

void StepSlices::note_written_shards() {
  if (!store_.partitions_parameters()) return;
  for (size_t group = 0; group < owned_.size(); ++group) {
    for (const size_t param : store_.take_set(group)) {
      const Interval place = store_.shards(group)->place(param);
      for (Slice& slice : slices_) {
        const Interval common = intersect(slice.interval, place);
        if (slice.flat.group == group && slice.plan.keeps_masters() && !common.empty())
          slice.stale.push_back({common.begin - slice.interval.begin, common.end - slice.interval.begin});
      }
    }
  }
}

void StepSlices::take_weights(Slice& slice, const Interval& part) const {
  const at::Tensor master = slice.flat.master.narrow(0, part.begin, part.numel());
  if (options_.split_masters) {
    master.zero_();
  } else {
    weights_of(slice).read(part, master);
  }
}

void StepSlices::follow_weights(Slice& slice, Access access) const {
  for (const Interval& stale : slice.stale) take_weights(slice, stale);
  if (access == Access::kChange || !slice.plan.is_on_disk()) slice.stale.clear();
}

void StepSlices::step(const GradReducer& reducer, double gradient_scale) {
  // What stays on the device is stepped first: the device goes on with it meanwhile.
  std::vector<size_t> here, apart;
  for (const size_t index : all()) {
    if (has_begun() && ahead_->was_given(index)) continue;
    (slices_[index].plan.crosses_memory ? apart : here).push_back(index);
  }
  std::reverse(apart.begin(), apart.end());  // the last gradients are there first
  const auto step = [&](Slice& slice) { step_slice(slice, reducer, gradient_scale); };
  if (has_begun()) publish_begun(reducer);
  for_each(here, Access::kChange, step);
  if (!apart.empty()) {
    expect_transfers(reducer, apart);
    for_each(apart, Access::kChange, step);
    transfers_.finish();
  }
  store_.finish_writes();
}

void StepSlices::expect_transfers(const GradReducer& reducer, const std::vector<size_t>& order) {
  std::vector<at::Tensor> sources;
  for (const size_t index : order) {
    const Slice& slice = slices_[index];
    if (!reducer.keeps_on_host()) sources.push_back(reducer.gradient(slice.flat.group, slice.interval));
    if (slice.plan.route == WeightRoute::kFetched) sources.push_back(weights_of(slice).memory());
  }
  transfers_.expect(std::move(sources), slices_[order.front()].plan.route == WeightRoute::kFetched);
}

at::Tensor StepSlices::gradient_of(const Slice& slice, const GradReducer& reducer) {
  if (slice.plan.crosses_memory && !reducer.keeps_on_host()) return transfers_.next();
  return reducer.gradient(slice.flat.group, slice.interval);
}

at::Tensor StepSlices::copy_of(const SliceWeights& weights, const Slice& slice, int64_t numel) const {
  const at::Tensor copy = at::empty({numel}, options_at(slice, dtype_of(slice)));
  weights.read({0, numel}, copy);
  return copy;
}

/// Of the model's dtype, where the slice is stepped; it holds the weights where the step reads them. Of a
/// model in fp32 it is the master that is copied.
at::Tensor StepSlices::memory_for_weights(const Slice& slice, const SliceWeights& weights) {
  const int64_t numel = slice.interval.numel();
  switch (slice.plan.route) {
    case WeightRoute::kInPlace:
      weights.wait_for_reads();
      return weights.memory();
    case WeightRoute::kFetched:
      return transfers_.next();
    case WeightRoute::kSent:
      return transfers_.outgoing(numel, dtype_of(slice));
    case WeightRoute::kWritten:
      break;
  }
  if (slice.plan.reads_weights()) return copy_of(weights, slice, numel);
  return at::empty({numel}, options_at(slice, dtype_of(slice)));
}

void StepSlices::pass_on_weights(const Slice& slice, const SliceWeights& weights, const at::Tensor& updated) {
  const bool is_rounded = store_.dtype() != at::kFloat;
  switch (slice.plan.route) {
    case WeightRoute::kInPlace:
      return;
    case WeightRoute::kFetched:
      return transfers_.send_back(weights.memory());
    case WeightRoute::kSent:
      if (!is_rounded) updated.copy_(slice.flat.master);
      return transfers_.send(weights.memory(), updated);
    case WeightRoute::kWritten:
      return weights.write(is_rounded ? updated : slice.flat.master);
  }
}

void StepSlices::step_slice(Slice& slice, const GradReducer& reducer, double gradient_scale) {
  follow_weights(slice, Access::kChange);
  optim::FlatSlice& flat = slice.flat;
  const SliceWeights weights = weights_of(slice);
  const bool is_kept = slice.plan.keeps_masters();
  const bool is_rounded = store_.dtype() != at::kFloat;
  flat.gradient = gradient_of(slice, reducer);
  at::Tensor updated;
  if (is_rounded || slice.plan.sends_weights() || !is_kept) updated = memory_for_weights(slice, weights);
  const bool is_direct = !is_kept && is_rounded && optimizer_.steps_sixteen_bit_masters();
  // Of a model in fp32 no copy.
  if (!is_kept) flat.master = is_direct ? updated : updated.to(store_.master_dtype(flat.group));
  if (is_rounded && !is_direct) flat.low_precision = updated;
  optimizer_.step(flat, gradient_scale);
  pass_on_weights(slice, weights, updated);
  flat.gradient.reset();
  flat.low_precision.reset();
  if (!is_kept) flat.master.reset();
}

void StepSlices::visit(size_t group, const Interval& part, Access access, Shown shown,
                       const VisitSlice& visit) {
  note_written_shards();
  std::vector<size_t> indices;
  for (const size_t index : all()) {
    const Slice& slice = slices_[index];
    if (slice.flat.group != group) continue;
    const bool meets = !intersect(slice.interval, part).empty();
    const bool is_first =
        indices.empty() && slice.interval.begin == 0;  // its names and types are those of all
    if (meets || (part.empty() && is_first)) indices.push_back(index);
  }
  for_each(indices, access, [&](Slice& slice) {
    follow_weights(slice, access);
    if (options_.split_masters) return visit_split(slice, part, access, shown, visit);
    const size_t id = slice.flat.id;
    const bool is_copy = !slice.plan.keeps_masters() && store_.home() == ParamHome::kDisk;
    const SliceWeights weights = weights_of(slice);
    if (access == Access::kChange) weights.wait_for_reads();
    const at::Tensor master = slice.plan.keeps_masters() ? slice.flat.master
                              : is_copy                  ? copy_of(weights, slice, slice.interval.numel())
                                                         : weights.memory();
    visit({slice.interval, master, optimizer_.state(id), !slice.plan.is_on_disk(),
           [&](const optim::SliceState& state) {
             optimizer_.load_state(id, in_precision_of(state, store_.master_dtype(group)));
           }});
    if (is_copy && access == Access::kChange) weights.write(master);
  });
  if (access == Access::kChange) store_.finish_writes();
}

/// Shows fp32 masters of the part alone, which live for the visit.
void StepSlices::visit_split(Slice& slice, const Interval& part, Access access, Shown shown,
                             const VisitSlice& visit) {
  // On a disk weights are read and written by whole parameters.
  Interval seen = store_.home() == ParamHome::kDisk ? slice.interval : intersect(slice.interval, part);
  if (seen.empty()) seen = {slice.interval.begin, slice.interval.begin};
  const int64_t begin = seen.begin - slice.interval.begin, numel = seen.numel();
  const size_t id = slice.flat.id;
  StateSlice shows{seen, at::Tensor(), optimizer_.state(id), !slice.plan.is_on_disk(),
                   [&](const optim::SliceState& loaded) {
                     if (!(seen == slice.interval))
                       raise<UsageError>("zero.step_slices", "a state is loaded into ", numel,
                                         " elements of a slice, expected all ", slice.interval.numel());
                     optimizer_.load_state(id, loaded);
                   }};
  for (auto& [name, tensor] : shows.state.tensors) tensor = tensor.narrow(0, begin, numel);
  if (shown == Shown::kKept) return visit(shows);
  const SliceWeights weights = weights_at(slice, seen);
  const at::Tensor upper = slice.plan.is_at_weights() ? weights.memory() : copy_of(weights, slice, numel);
  const at::Tensor lower = slice.flat.master.narrow(0, begin, numel);
  shows.master = kernels::join_master(upper, lower);
  visit(shows);
  if (access != Access::kChange) return;
  weights.wait_for_reads();
  kernels::split_master(shows.master, upper, lower);
  if (!slice.plan.is_at_weights()) weights.write(upper);
}

std::optional<optim::SliceState> StepSlices::state_on_disk(size_t group, const Interval& part) const {
  for (const Slice& slice : slices_) {
    if (slice.flat.group == group && slice.plan.is_on_disk() && !intersect(slice.interval, part).empty())
      return optimizer_.state(slice.flat.id);
  }
  return std::nullopt;
}

std::vector<GroupState> StepSlices::kept(size_t group) const {
  std::vector<GroupState> kept;
  for (const Slice& slice : slices_) {
    if (slice.flat.group == group && !slice.plan.is_on_disk())
      kept.push_back({slice.flat.master, optimizer_.state(slice.flat.id)});
  }
  return kept;
}

GroupState StepSlices::state(size_t group, const Interval& part, Shown shown) {
  GroupState result;
  visit(group, part, Access::kRead, shown, [&](const StateSlice& slice) {
    if (slice.master.defined()) collect(slice.master, slice, part, result.master);
    auto& tensors = result.state.tensors;
    if (tensors.empty()) {
      for (const auto& [name, flat] : slice.state.tensors) tensors.emplace_back(name, at::Tensor());
    }
    for (size_t index = 0; index < slice.state.tensors.size(); ++index)
      collect(slice.state.tensors[index].second, slice, part, tensors.at(index).second);
    result.state.step = slice.state.step;
  });
  return result;
}

void StepSlices::write_weights() {
  note_written_shards();
  if (options_.split_masters) return;  // they are the upper halves
  for_each(with_masters(), Access::kRead, [&](Slice& slice) {
    follow_weights(slice, Access::kRead);
    weights_of(slice).write(slice.flat.master);
  });
  store_.finish_writes();
}

void StepSlices::read_weights() {
  for_each(with_masters(), Access::kChange, [&](Slice& slice) {
    slice.stale.clear();
    take_weights(slice, {0, slice.interval.numel()});
  });
}

int64_t StepSlices::master_bytes() const {
  int64_t bytes = 0;
  for (const Slice& slice : slices_) {
    if (slice.plan.keeps_masters()) bytes += static_cast<int64_t>(slice.flat.master.nbytes());
  }
  return bytes;
}

}  // namespace deepspeed::zero
