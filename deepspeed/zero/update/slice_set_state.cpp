// Shows masters and states to checkpoints and inspection, slice by slice. Slices on a disk are in memory one
// at a time. Split masters are joined during a visit.
#include <algorithm>

#include <ATen/ops/empty.h>

#include "deepspeed/base/error.h"
#include "deepspeed/kernels/split_master.h"
#include "deepspeed/zero/update/slice_set.h"

namespace deepspeed::zero {
namespace {

// Returns what `flat`, which lies at `place`, has in common with `part`.
at::Tensor common_part(const at::Tensor& flat, const Interval& place, const Interval& part) {
  if (part.empty()) return flat.narrow(0, 0, 0);
  const Interval common = intersect(place, part);
  return flat.narrow(0, common.begin - place.begin, common.numel());
}

// Copies what `part` has of a slice's flat tensor into `collected`. If that is all of `part` and stays in
// memory, `collected` shares the tensor instead.
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

/// Converts fp32 and fp64 state tensors to the masters' dtype. They may come from another run.
optim::SliceState in_precision_of(optim::SliceState state, at::ScalarType masters) {
  for (auto& [name, tensor] : state.tensors) {
    const at::ScalarType dtype = tensor.scalar_type();
    if (dtype == at::kDouble || (masters == at::kDouble && dtype == at::kFloat)) tensor = tensor.to(masters);
  }
  return state;
}

}  // namespace

void SliceSet::visit(size_t group, const Interval& part, Access access, Shown shown,
                     const VisitSlice& visit) {
  note_written_weights();
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

/// Shows the fp32 masters of only the part, joined from their upper and lower 16 bits. These masters exist
/// during the visit.
void SliceSet::visit_split(Slice& slice, const Interval& part, Access access, Shown shown,
                           const VisitSlice& visit) {
  // On a disk, weights are read and written as whole parameters.
  Interval seen = store_.home() == ParamHome::kDisk ? slice.interval : intersect(slice.interval, part);
  if (seen.empty()) seen = {slice.interval.begin, slice.interval.begin};
  const int64_t begin = seen.begin - slice.interval.begin, numel = seen.numel();
  const size_t id = slice.flat.id;
  StateSlice shows{seen, at::Tensor(), optimizer_.state(id), !slice.plan.is_on_disk(),
                   [&](const optim::SliceState& loaded) {
                     if (!(seen == slice.interval))
                       raise<UsageError>("a state is loaded into ", numel,
                                         " elements of a slice, expected all ", slice.interval.numel());
                     optimizer_.load_state(id, loaded);
                   }};
  for (auto& [name, tensor] : shows.state.tensors) tensor = tensor.narrow(0, begin, numel);
  if (shown == Shown::kResident) return visit(shows);
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

std::optional<optim::SliceState> SliceSet::state_on_disk(size_t group, const Interval& part) const {
  for (const Slice& slice : slices_) {
    if (slice.flat.group == group && slice.plan.is_on_disk() && !intersect(slice.interval, part).empty())
      return optimizer_.state(slice.flat.id);
  }
  return std::nullopt;
}

std::vector<GroupState> SliceSet::resident_state(size_t group) const {
  std::vector<GroupState> resident;
  for (const Slice& slice : slices_) {
    if (slice.flat.group == group && !slice.plan.is_on_disk())
      resident.push_back({slice.flat.master, optimizer_.state(slice.flat.id)});
  }
  return resident;
}

GroupState SliceSet::state(size_t group, const Interval& part, Shown shown) {
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
    result.state.numbers = slice.state.numbers;
  });
  return result;
}

}  // namespace deepspeed::zero
