// The steps of a use through the pool, under its lock:
//
// 1. begin_use() refuses uses that are not allowed (check_use).
// 2. The outermost operator of a pass makes the pass arrive at the parameter (arrive_at). LookAhead follows
//    the trace, the parameter used last is released if it is not needed soon, and a unit is gathered as a
//    whole.
// 3. The parameter's own gather starts, then those of the next parameters. Only then does begin_use() wait
//    (Gatherer::finish).
// 4. end_use() releases parameters that are done. close_window() ends the pass and releases the rest.
//
// Ranks communicate about a unit, and decide what to send, only when a pass arrives at the unit or leaves it.
// Which of the unit's parameters are used in between may vary from rank to rank.
#include "deepspeed/zero/access/gather_pool.h"

#include <algorithm>

#include <c10/core/GradMode.h>

#include "deepspeed/base/error.h"
#include "deepspeed/base/interval.h"

namespace deepspeed::zero {
namespace {

using State = Gatherable::State;

thread_local int num_forwards = 0;  // of training engines, on this thread

GathererOptions gatherer_options(const comm::ProcessGroup& shard_group, const GatherPoolOptions& options) {
  GathererOptions of{.keys = options.keys, .num_ranks = shard_group.size()};
  if (options.secondary_group) {
    of.num_near = options.secondary_group.size();
    of.near_rank = options.secondary_group.rank();
  }
  return of;
}

/// Returns whether a use of the parameter must not advance the pass's trace. This is so if the parameter's
/// unit is current, or if a GatheredParameters holds a unit's parameter, since a single rank may use it then.
bool stays_in_unit(const Gatherable& param, const ParamTable& params) {
  const GatherUnit* const unit = param.unit_of_owner();
  return unit != nullptr && (unit == params.current() || param.num_holds > 0);
}

}  // namespace

GatherPool::GatherPool(comm::ProcessGroup shard_group, const GatherPoolOptions& options)
    : options_(options),
      ranks_(std::move(shard_group), options.nodes, options.secondary_group),
      look_ahead_(options.keys, options.read_ahead_numel, params_),
      live_(options.keys.stage3_max_live_parameters, params_, look_ahead_),
      gatherer_(
          gatherer_options(ranks_.shard_group(), options),
          [this](std::vector<std::shared_ptr<Shard>> shards, at::ScalarType dtype, at::Device device,
                 const GatherRoute& route) { return ranks_.start(std::move(shards), dtype, device, route); },
          live_) {
  const config::ParamGatherConfig& keys = options.keys;
  for (const int64_t limit : {keys.stage3_max_live_parameters, keys.stage3_param_persistence_threshold,
                              keys.stage3_model_persistence_threshold, keys.stage3_prefetch_bucket_size,
                              keys.stage3_max_reuse_distance, options.read_ahead_numel}) {
    if (limit < 0) raise<UsageError>("a limit of ", limit, " elements, expected 0 or more");
  }
}

std::string PartitionedStorage::text_where_empty() const {
  // The text is made at every release, so it is joined without a stream.
  return "[zero.access] parameter '" + param_.name +
         "' is partitioned, and its data was read without an operator that could gather it; read it inside "
         "zero::GatheredParameters";
}

std::shared_ptr<PartitionedStorage> GatherPool::partition(const at::Tensor& param, std::string name,
                                                          std::shared_ptr<Shard> shard,
                                                          std::optional<at::Device> device) {
  const at::Device home = device.value_or(param.device());
  const int64_t numel = param.numel();
  const int num_ranks = shard_group().size();
  if (numel == 0 || shard->numel() != shard_numel(numel, num_ranks)) {
    raise<UsageError>("parameter '", name, "' of ", numel, " ", param.scalar_type(), " got a shard of ",
                      shard->numel(), " ", shard->dtype(), ", expected one of ", num_ranks, " equal ones");
  }
  const std::lock_guard lock(mutex_);
  // Once the second limit is reached over the whole model, later small parameters are not persistent.
  const bool persistent = numel <= options_.keys.stage3_param_persistence_threshold &&
                          persistent_numel_ + numel <= options_.keys.stage3_model_persistence_threshold;
  if (persistent) persistent_numel_ += numel;
  ranks_.set_device(home);
  auto storage = std::make_shared<PartitionedStorage>(
      shared_from_this(), std::move(name), numel, home, std::move(shard),
      PartitionedTraits{persistent, param.requires_grad(), param.dim() > 1});
  storage->param().record = storage;
  params_.add(storage->param());
  storage->take_id_of(param);
  arm(param, storage, at::TensorOptions(home).dtype(storage->param().dtype));
  return storage;
}

std::shared_ptr<PartitionedStorage> GatherPool::make_copy(PartitionedStorage& source, at::ScalarType dtype) {
  const std::lock_guard lock(mutex_);
  const Gatherable& param = source.param();
  // Under GatheredParameters the caller wants the values, and writes are not in the shards yet. A copy of a
  // persistent parameter is as small as that parameter.
  if (param.is_copy() || param.num_holds > 0 || param.traits.is_persistent) return nullptr;
  auto copy = std::make_shared<PartitionedStorage>(source.shared_from_this(), dtype);
  copy->param().record = copy;
  params_.add_copy(copy->param());
  look_ahead_.replace(copy->param());
  return copy;
}

void GatherPool::forget(Gatherable& param) noexcept {
  const std::lock_guard lock(mutex_);
  if (param.state != State::kPartitioned) live_.drop(param);
  look_ahead_.forget(param);
  params_.forget(param);
}

size_t GatherPool::join(std::string name, const std::vector<std::shared_ptr<PartitionedStorage>>& members) {
  const std::lock_guard lock(mutex_);
  std::vector<Gatherable*> params;
  for (const auto& member : members) params.push_back(&member->param());
  const GatherUnit& unit = params_.join(std::move(name), params);
  look_ahead_.look_anew();
  return unit.index;
}

void GatherPool::on_unit_done(std::function<void(size_t unit)> call) {
  const std::lock_guard lock(mutex_);
  on_unit_done_ = std::move(call);
}

void GatherPool::open_window(AccessMode mode) {
  const std::lock_guard lock(mutex_);
  if (num_windows_ == 0) compare_writes();
  if (++num_windows_ > 1) return;
  is_forward_ = mode == AccessMode::kForward;
  num_forwards += is_forward_;
  look_ahead_.begin_pass(mode);
}

void GatherPool::close_window() {
  const std::lock_guard lock(mutex_);
  if (num_windows_ == 0) raise<UsageError>("no access window is open that could be closed");
  if (--num_windows_ > 0) return;
  num_forwards -= is_forward_;
  is_forward_ = false;
  look_ahead_.end_pass();
  params_.set_current(nullptr);
  live_.for_each([&](Gatherable& param) {
    if (param.state == State::kGathering) gatherer_.finish_unwanted(param);
    if (live_.may_go_after_pass(param)) live_.release(param);
  });
  ranks_.drop_unused_buffers();
  look_ahead_.read_for_next_pass();
}

void GatherPool::check_use(const Gatherable& param, const std::string& op, bool writes) const {
  if (param.owner().is_given_back) {
    raise<UsageError>("parameter '", param.owner().name, "' is whole again, and ", op,
                      " uses a tensor over what it was before: a view, or what a graph has kept of it; make "
                      "new views, and run backward before destroy()");
  }
  // No pass begins or ends before initialize(): code that adapts a model on all ranks reads it operator by
  // operator. An engine's forward would train parameters that no engine owns.
  const bool would_train = num_forwards > 0 && c10::GradMode::is_enabled() && param.owner().traits.is_trained;
  const bool is_before_initialize = options_.is_provisional && !writes && !would_train;
  if (num_windows_ == 0 && param.num_holds == 0 && !is_usable_anywhere(param) && !is_before_initialize) {
    raise<UsageError>(
        "parameter '", param.name, "' is partitioned over ", shard_group().size(), " ranks, and ", op,
        writes ? " writes it" : " uses it", " outside of an access window; ",
        writes ? "write it inside a zero::GatheredParameters with a modifier_rank"
               : "open a zero::ParameterAccess or zero::GatheredParameters around the code that uses it, "
                 "on all ranks",
        options_.is_provisional
            ? "; no engine has it: a module that is to be trained is there before initialize()"
            : "");
  }
  if (!writes || param.is_writable || param.is_copy()) return;
  if (num_windows_ == 0 && param.num_holds == 0) {
    if (param.shard->memory().defined()) return;
    raise<UsageError>("parameter '", param.name, "' has its shards on a disk, and ", op,
                      " writes it where it is whole; write it inside a zero::GatheredParameters with a "
                      "modifier_rank");
  }
  if (num_windows_ == 0) return;  // such writes are seen while the holds last
  raise<UsageError>("parameter '", param.name, "' is partitioned, and ", op,
                    " writes to it, an in-place modification which would be lost; write it inside a "
                    "zero::GatheredParameters with a modifier_rank, between passes; stage 3 does not support "
                    "models that write parameters in forward, such as Embedding with max_norm");
}

// One rank may use it without the others, so only parameters that need no gather qualify.
bool GatherPool::is_usable_anywhere(const Gatherable& param) const {
  return lets_use_persistent_ && param.traits.is_persistent && !param.is_rounded &&
         param.state == State::kWhole;
}

void GatherPool::begin_use(Gatherable& param, const std::string& op, bool writes) {
  const std::lock_guard lock(mutex_);
  check_use(param, op, writes);
  // Operators call others with the same parameters. Only the outermost counts.
  const bool is_outermost = param.num_uses == 0;
  const bool is_next = is_outermost && num_windows_ > 0 && !stays_in_unit(param, params_);
  if (is_next) arrive_at(param);
  if (param.state == State::kPartitioned) gatherer_.start_one(param);
  if (is_next) {
    if (const auto ahead = look_ahead_.to_gather(live_.room()); !ahead.empty()) gatherer_.start(ahead);
    look_ahead_.read_ahead();  // into the buffers that these gathers have left
  }
  gatherer_.make_whole(param);
  if (writes && param.is_copy()) param.is_kept = true;
  if (writes && num_windows_ == 0 && param.num_holds == 0) {
    param.is_rewritten = true;
  } else if (writes && !param.is_copy() && !param.is_writable) {
    spoil(param);
  }
  param.was_written = param.was_written || writes;
  ++param.num_uses;
  // On all ranks, a unit's parameters are ordered by their gathers.
  if (param.unit == nullptr) live_.note_used(param);
}

void GatherPool::end_use(Gatherable& param) {
  const std::lock_guard lock(mutex_);
  --param.num_uses;
  if (param.is_rewritten && param.num_uses == 0) take_write(param);
  // Several operators in a row may use the latest parameter, so it stays until another is used.
  const bool is_latest = num_windows_ > 0 && live_.latest() == &param;
  if (!is_latest && live_.is_done(param)) live_.release(param);
}

bool GatherPool::begin_module(PartitionedStorage& storage) {
  const std::lock_guard lock(mutex_);
  if (storage.param().unit_of_owner() != nullptr) return false;
  begin_use(storage.param(), "a module", /*writes=*/false);
  return true;
}

void GatherPool::end_module(PartitionedStorage& storage) {
  const std::lock_guard lock(mutex_);
  Gatherable& param = storage.param();
  --param.num_uses;
  if (!look_ahead_.is_used_soon(param.key) && live_.may_go_after_pass(param)) live_.release(param);
}

void GatherPool::arrive_at(Gatherable& param) {
  GatherUnit* const unit = param.unit_of_owner();
  GatherUnit* const left = params_.set_current(unit);
  Gatherable* const latest = live_.latest();
  look_ahead_.note_use(param);
  if (latest != nullptr && latest != &param && live_.is_done(*latest)) live_.release(*latest);
  if (left != nullptr) leave(*left);
  if (unit != nullptr) gather(*unit);
}

void GatherPool::leave(GatherUnit& unit) {
  // Copies exist on this rank only, and are remade from what is gathered.
  const std::vector<Gatherable*> copies(unit.live_copies.begin(), unit.live_copies.end());
  for (Gatherable* const copy : copies) {
    if (live_.may_go(*copy)) live_.release(*copy);
  }
  if (!look_ahead_.stays(unit.key)) {
    for (Gatherable* const member : unit.members) {
      if (live_.may_go(*member)) live_.release(*member);
    }
  }
  if (on_unit_done_ && look_ahead_.is_over_in_backward(unit.key)) on_unit_done_(unit.index);
}

void GatherPool::gather(GatherUnit& unit) {
  std::vector<Gatherable*> missing;
  int64_t numel = 0;
  for (Gatherable* const member : unit.members) {
    const auto record = member->record.lock();
    if (!record || !record->has_storage()) continue;
    if (member->state != State::kPartitioned) {
      live_.note_used(*member);
      continue;
    }
    missing.push_back(member);
    numel += member->numel;
  }
  if (!missing.empty()) {
    live_.make_room(numel);
    gatherer_.start(missing);
  }
  for (Gatherable* const member : unit.members) {
    if (member->state == State::kGathering) gatherer_.finish(*member);
  }
}

void GatherPool::empty_cache() {
  const std::lock_guard lock(mutex_);
  compare_writes();
  live_.for_each([&](Gatherable& param) {
    if (param.state == State::kGathering) gatherer_.finish_unwanted(param);
    if (param.state == State::kWhole && !param.is_in_use() && !param.is_kept) live_.release(param);
  });
}

void GatherPool::suspend(std::string why) {
  const std::lock_guard lock(mutex_);
  empty_cache();
  if (const Gatherable* const live = live_.oldest()) {
    raise<UsageError>("parameter '", live->name,
                      "' is gathered; leave zero::GatheredParameters, and run backward, first");
  }
  params_.drop_secondary_parts();
  gatherer_.suspend(std::move(why));
}

void GatherPool::resume() {
  const std::lock_guard lock(mutex_);
  gatherer_.resume();
}

int64_t GatherPool::live_numel() const {
  const std::lock_guard lock(mutex_);
  return live_.numel();
}

Gatherable::State GatherPool::state_of(const Gatherable& param) const {
  const std::lock_guard lock(mutex_);
  return param.state;
}

}  // namespace deepspeed::zero
