// Masters and optimizer states as checkpoints, tools and loads see them.
//
// Reads and changes go to the slices (SliceSet), wherever those are, after two checks: no step may have begun
// in backward (EarlyStep), and none may have failed halfway (note_damage_of). After a load changed masters,
// publish_masters() writes them into the weights and gathers all partitions; restore_masters_from_model()
// does the reverse. A failure on one rank's disk becomes an error on all ranks (on_all_ranks).
#include "deepspeed/zero/zero_state.h"

#include <algorithm>
#include <exception>
#include <vector>

#include <c10/core/GradMode.h>

#include "deepspeed/base/error.h"
#include "deepspeed/comm/on_all_ranks.h"
#include "deepspeed/zero/layout/zero_groups.h"
#include "deepspeed/zero/offload/optimizer_offload.h"
#include "deepspeed/zero/params/param_store.h"
#include "deepspeed/zero/update/early_step.h"
#include "deepspeed/zero/update/slice_set.h"
#include "deepspeed/zero/zero_options.h"

namespace deepspeed::zero {
namespace {

/// Gathers a flat space on every rank, after each rank changed its own partition. flat:
/// (layout.padded_numel()), with this rank's partition up to date. If keys.allgather_partitions is false or
/// `flat` exceeds keys.allgather_bucket_size elements, owners broadcast; at most that many elements, over all
/// ranks, are in flight at once.
void gather_partitions(const comm::ProcessGroup& group, const at::Tensor& flat, const FlatLayout& layout,
                       const config::PartitionGatherConfig& keys) {
  const int64_t numel = layout.partition_numel();
  if (group.size() == 1 || numel == 0) return;
  if (keys.allgather_partitions && flat.numel() <= keys.allgather_bucket_size) {
    const Interval own = layout.partition(group.rank());
    group.all_gather(flat, flat.narrow(0, own.begin, own.numel()));
    return;
  }
  // Send one piece of every partition at a time. Pieces of different partitions are not adjacent, so each has
  // its own broadcast.
  const int64_t most = std::max<int64_t>(keys.allgather_bucket_size / group.size(), 1);
  for (int64_t begin = 0; begin < numel; begin += most) {
    std::vector<comm::Work> works;
    for (int owner = 0; owner < group.size(); ++owner) {
      const int64_t first = layout.partition(owner).begin + begin;
      works.push_back(group.start_broadcast(flat.narrow(0, first, std::min(most, numel - begin)), owner));
    }
    for (comm::Work& work : works) work.wait();
  }
}

}  // namespace

ZeroState::ZeroState(ParamStore& store, optim::Optimizer& optimizer, const ZeroGroups& ranks,
                     const ZeroOptions& options)
    : store_(store), ranks_(ranks), options_(options) {
  on_all_ranks("offloading the optimizer", [&] {
    const c10::NoGradGuard no_grad;
    slices_ = std::make_unique<SliceSet>(store, optimizer, ranks.shard, options.update,
                                         options.gradients.accumulation_dtype);
    if (options.update.offload.super_offload)
      early_ = std::make_unique<EarlyStep>(store, optimizer, *slices_, options.update);
  });
}

ZeroState::~ZeroState() = default;

bool ZeroState::has_master_weights() const {
  return store_.dtype() != at::kFloat && !options_.update.sixteen_bit_masters;
}

bool ZeroState::has_split_masters() const { return options_.update.split_masters; }

bool ZeroState::makes_fp32_masters() const {
  return options_.update.split_masters || options_.update.sixteen_bit_masters;
}

Interval ZeroState::owned(size_t group) const { return slices_->owned(group); }

std::vector<ParamPiece> ZeroState::pieces(size_t group, const Interval& part) const {
  return slices_->pieces(group, part);
}

GroupState ZeroState::of(size_t group, const Interval& part) const {
  const c10::NoGradGuard no_grad;
  check_whole();
  return slices_->state(group, part);
}

GroupState ZeroState::beside_masters(size_t group, const Interval& part) const {
  const c10::NoGradGuard no_grad;
  check_whole();
  return slices_->states_beside_masters(group, part);
}

std::optional<optim::SliceState> ZeroState::on_disk(size_t group, const Interval& part) const {
  return slices_->state_on_disk(group, part);
}

std::vector<GroupState> ZeroState::resident(size_t group) const {
  check_no_step_has_begun();
  return slices_->resident_state(group);
}

void ZeroState::read(size_t group, const Interval& part, const VisitSlice& visit) const {
  const c10::NoGradGuard no_grad;
  check_whole();
  slices_->visit(group, part, SliceSet::Access::kRead, visit);
}

void ZeroState::change(size_t group, const Interval& part, const VisitSlice& visit) {
  const c10::NoGradGuard no_grad;
  check_no_step_has_begun();
  slices_->visit(group, part, SliceSet::Access::kChange, visit);
}

void ZeroState::on_all_ranks(const char* what, const std::function<void()>& work) const {
  if (!uses_disk() || ranks_.data.size() == 1) return work();
  comm::on_all_ranks(ranks_.data, what, work);
}

void ZeroState::publish_masters() {
  const c10::NoGradGuard no_grad;
  check_whole();
  if (has_master_weights() || options_.update.offload.is_on() || store_.home() != ParamHome::kDevice)
    on_all_ranks("reading the master weights", [&] { slices_->write_weights(); });
  gather_parameters();
}

void ZeroState::restore_masters_from_model() {
  const c10::NoGradGuard no_grad;
  check_no_step_has_begun();
  slices_->read_weights();
}

void ZeroState::check_no_step_has_begun() const {
  if (!has_begun()) return;
  raise<UsageError>(
      "gradients, masters and states are not available between the backward() at the accumulation boundary, "
      "which has begun the step, and step(): call step() first (or load a checkpoint if that backward() "
      "failed), or set zero_optimization.offload_optimizer.super_offload to false");
}

void ZeroState::check_undamaged() const {
  if (damage_.empty()) return;
  raise<UsageError>("a step was applied in part, so masters and states are unusable: ", damage_,
                    "; load a checkpoint");
}

void ZeroState::check_whole() const {
  check_no_step_has_begun();
  check_undamaged();
}

bool ZeroState::has_begun() const { return early_ && early_->has_begun(); }

bool ZeroState::uses_disk() const {
  return options_.update.offload.device == OffloadDevice::kNvme || store_.home() == ParamHome::kDisk;
}

void ZeroState::note_damage_of(int64_t step_number, const std::function<void()>& step) {
  try {
    step();
  } catch (const std::exception& error) {
    if (early_) early_->close();
    damage_ = message("step ", step_number, ": ", error.what());
    throw;
  }
}

void ZeroState::abandon_step() {
  if (!has_begun()) return;
  early_->close();
  damage_ = "backward() had begun it when load_checkpoint() was called";
}

void ZeroState::gather_parameters() {
  if (!store_.partitions_states()) return;
  if (store_.partitions_parameters()) return store_.shards_changed();
  for (const StoredGroup& stored : store_.groups()) {
    gather_partitions(ranks_.shard, stored.flat, stored.layout, options_.gather);
  }
}

}  // namespace deepspeed::zero
