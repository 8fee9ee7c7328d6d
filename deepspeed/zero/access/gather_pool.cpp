#include "deepspeed/zero/access/gather_pool.h"

#include <map>
#include <utility>
#include <vector>

#include <c10/core/GradMode.h>
#include <c10/core/InferenceMode.h>

#include "deepspeed/base/error.h"
#include "deepspeed/base/interval.h"
#include "deepspeed/base/message.h"
#include "deepspeed/comm/watch/call_subject.h"

namespace deepspeed::zero {
namespace {

// Bytes of a shard from which on a message of its own costs less than the copies into and out of a shared
// one: its parameter is received where it is used.
constexpr int64_t kTravelsAlone = 256 * 1024;

// Buffers are ordinary tensors, whatever mode the operator that wants them runs in.
struct OrdinaryTensors {
  c10::InferenceMode normal{false};
  c10::NoGradGuard no_grad;
};

}  // namespace

GatherPool::GatherPool(comm::ProcessGroup shard_group, const GatherPoolOptions& options)
    : shard_group_(std::move(shard_group)),
      options_(options),
      coordinator_(options.keys.stage3_max_reuse_distance),
      to_gather_(make_window(options.keys.stage3_prefetch_bucket_size, /*holds_next=*/true, &item_to_gather)),
      to_read_(make_window(options.read_ahead_numel, /*holds_next=*/false, &item_to_read)),
      live_(options.keys.stage3_max_live_parameters) {
  const config::ParamGatherConfig& keys = options.keys;
  for (const int64_t limit : {keys.stage3_max_live_parameters, keys.stage3_param_persistence_threshold,
                              keys.stage3_model_persistence_threshold, keys.stage3_prefetch_bucket_size,
                              keys.stage3_max_reuse_distance, options.read_ahead_numel}) {
    if (limit < 0) raise<UsageError>("a limit of ", limit, " elements, expected 0 or more");
  }
}

std::shared_ptr<PartitionedStorage> GatherPool::partition(const at::Tensor& param, std::string name,
                                                          std::shared_ptr<Shard> shard,
                                                          std::optional<at::Device> device) {
  const at::Device home = device.value_or(param.device());
  const int64_t numel = param.numel();
  const bool fits = shard->numel() == shard_numel(numel, shard_group_.size());
  if (numel == 0 || !fits) {
    raise<UsageError>("parameter '", name, "' of ", numel, " ", param.scalar_type(), " got a shard of ",
                      shard->numel(), " ", shard->dtype(), ", expected one of ", shard_group_.size(),
                      " equal ones");
  }
  const std::lock_guard lock(mutex_);
  // Over the model as a whole, small parameters that come later do not stay once the second limit is reached.
  const bool persistent = numel <= options_.keys.stage3_param_persistence_threshold &&
                          persistent_numel_ + numel <= options_.keys.stage3_model_persistence_threshold;
  if (persistent) persistent_numel_ += numel;
  if (!copies_) copies_.emplace(home);
  auto storage = std::make_shared<PartitionedStorage>(
      shared_from_this(), std::move(name), numel, home, std::move(shard),
      PartitionedTraits{persistent, param.requires_grad(), param.dim() > 1});
  storage->key_ = ++num_params_ * PartitionedStorage::kKeysPerParam;
  by_key_[storage->key_] = storage.get();
  storage->take_id_of(param);
  arm(param, storage, at::TensorOptions(home).dtype(storage->dtype_));
  return storage;
}

void GatherPool::let_read_persistent() {
  const std::lock_guard lock(mutex_);
  lets_read_persistent_ = true;
}

void GatherPool::open_window(AccessMode mode) {
  const std::lock_guard lock(mutex_);
  if (++num_windows_ > 1) return;
  close_look_ahead();
  coordinator_.begin_pass(mode);
}

void GatherPool::close_window() {
  const std::lock_guard lock(mutex_);
  if (num_windows_ == 0) raise<UsageError>("no access window is open that could be closed");
  if (--num_windows_ > 0) return;
  close_look_ahead();
  coordinator_.end_pass();
  units_.set_current(nullptr);
  release_all();
  buffers_.drop_unused();
  read_for_next_pass();
}

int64_t GatherPool::live_numel() const {
  const std::lock_guard lock(mutex_);
  return live_.numel();
}

GatherPool::State GatherPool::state_of(const PartitionedStorage& storage) const {
  const std::lock_guard lock(mutex_);
  return storage.state_;
}

void GatherPool::check_use(const PartitionedStorage& storage, const std::string& op, bool writes) const {
  const PartitionedStorage& owner = storage.is_copy() ? *storage.source_ : storage;
  if (owner.is_given_back_) {
    raise<UsageError>("parameter '", owner.name_, "' is whole again, and ", op,
                      " uses a tensor over what it was before: a view, or what a graph has kept of it; make "
                      "views anew, and run backward before destroy()");
  }
  // One rank may read it alone: only where nothing needs to be gathered.
  const bool is_readable = lets_read_persistent_ && storage.persistent_ && !writes && !storage.is_rounded_ &&
                           storage.state_ == PartitionedStorage::State::kWhole;
  if (num_windows_ == 0 && storage.num_holds_ == 0 && !is_readable) {
    raise<UsageError>(
        "parameter '", storage.name_, "' is partitioned over ", shard_group_.size(), " ranks, and ", op,
        writes ? " writes it" : " uses it", " outside of an access window; ",
        writes ? "write it inside a zero::GatheredParameters with a modifier_rank"
               : "open a zero::ParameterAccess or zero::GatheredParameters around the code that uses it, "
                 "on all ranks",
        is_provisional() ? "; no engine has it: a module that is to be trained is there before initialize()"
                         : "");
  }
  if (!writes || storage.writable_ || storage.is_copy()) return;
  if (num_windows_ == 0) {
    raise<UsageError>(
        "parameter '", storage.name_, "' is partitioned, and ", op,
        " writes to it inside of a GatheredParameters without a modifier_rank, an in-place modification "
        "which would be lost at its end; give it a modifier_rank: the rank whose values all ranks take over");
  }
  raise<UsageError>("parameter '", storage.name_, "' is partitioned, and ", op,
                    " writes to it, an in-place modification which would be lost; write it inside a "
                    "zero::GatheredParameters with a "
                    "modifier_rank, between passes; stage 3 does not support models that write parameters in "
                    "forward, such as Embedding with max_norm");
}

void GatherPool::begin_use(PartitionedStorage& storage, const std::string& op, bool writes) {
  const std::lock_guard lock(mutex_);
  check_use(storage, op, writes);
  // Operators call others with the same parameters: the outermost counts.
  const bool is_outermost = storage.num_uses_ == 0;
  const bool is_next = is_outermost && num_windows_ > 0 && !stays_in_unit(storage);
  if (is_next) arrive_at(storage);
  if (storage.state_ == State::kPartitioned) start_gather(storage);
  if (is_next) look_ahead();
  make_whole(storage);
  if (writes && storage.is_copy()) storage.is_kept_ = true;
  storage.was_written_ = storage.was_written_ || writes;
  ++storage.num_uses_;
  // The order of a unit's parameters is that in which they are gathered, on all ranks.
  if (units_.unit_of(storage) == nullptr) note_used(storage);
}

void GatherPool::end_use(PartitionedStorage& storage) {
  const std::lock_guard lock(mutex_);
  --storage.num_uses_;
  // Several operators in a row may use it: the latest one stays until another is used.
  const bool is_latest = num_windows_ > 0 && live_.latest() == &storage;
  if (!is_latest && is_done(storage)) release(storage);
}

bool GatherPool::begin_module(PartitionedStorage& storage) {
  const std::lock_guard lock(mutex_);
  if (unit_of(storage) != nullptr) return false;
  begin_use(storage, "a module", /*writes=*/false);
  return true;
}

void GatherPool::end_module(PartitionedStorage& storage) {
  const std::lock_guard lock(mutex_);
  --storage.num_uses_;
  const bool is_used_soon = coordinator_.followed() != nullptr && coordinator_.stays(storage.key_);
  if (!is_used_soon && is_free_to_go(storage) && !stays_for_backward(storage)) release(storage);
}

bool GatherPool::is_done(const PartitionedStorage& storage) const {
  if (num_windows_ > 0 && units_.unit_of(storage) != nullptr) return false;  // it goes with its unit
  if (!is_free_to_go(storage)) return false;
  return num_windows_ == 0 || !(coordinator_.stays(storage.key_) || stays_for_backward(storage));
}

// In 16 bits, under autocast as well, memory is what counts: of a model that is trained so nothing is whole
// between its passes. Units are gathered by each pass.
bool GatherPool::stays_for_backward(const PartitionedStorage& storage) const {
  const bool may_stay =
      storage.dtype_ == at::kFloat && !storage.is_copy() && units_.unit_of(storage) == nullptr;
  return may_stay && coordinator_.stays_for_backward(storage.key_);
}

std::shared_ptr<StorageRecord> GatherPool::cast(PartitionedStorage& storage, at::ScalarType dtype) {
  const std::lock_guard lock(mutex_);
  // Under GatheredParameters the caller wants the values, and what was written is not in the shards yet; a
  // copy of a persistent parameter is as small as that.
  if (storage.is_copy() || storage.num_holds_ > 0 || storage.persistent_) return nullptr;
  auto copy = std::make_shared<PartitionedStorage>(storage.shared_from_this(), dtype);
  by_key_[copy->key_] = copy.get();
  for (AheadWindow* const window : {&to_gather_, &to_read_})
    window->replace(coordinator_.followed(), copy->key_, *copy);
  return copy;
}

void GatherPool::make_whole(PartitionedStorage& storage) {
  if (storage.state_ == State::kPartitioned) start_gather(storage);
  if (storage.state_ == State::kGathering) finish_gather(storage);
}

void GatherPool::make_exactly_whole(PartitionedStorage& storage) {
  if (storage.is_rounded_ && storage.num_uses_ == 0) release(storage);
  if (storage.state_ == State::kPartitioned) start_gather(storage, /*exact=*/true);
  make_whole(storage);
}

bool GatherPool::is_stale(const PartitionedStorage& storage) {
  return storage.is_copy() && storage.source_->version_ != storage.source_version_;
}

const std::shared_ptr<Shard>& GatherPool::current_shard(const PartitionedStorage& storage) {
  if (!storage.is_copy()) return storage.shard_;
  const PartitionedStorage& source = *storage.source_;
  if (is_stale(storage)) {
    raise<UsageError>("parameter '", source.name_, "' was changed after its copy in ", storage.dtype_,
                      " was made, which is used still; run backward before step()");
  }
  return source.shard_;
}

void GatherPool::start_gather(PartitionedStorage& storage, bool exact) {
  if (counted_numel(storage) > 0) make_room(storage.numel_);
  start_gathers({&storage}, exact);
}

// Norms and biases stay exact, unless they are large: they are little of what is sent, and sensitive.
bool GatherPool::is_quantized_for_passes(const PartitionedStorage& storage) const {
  const bool has_codes =
      storage.dtype_ == at::kFloat || storage.dtype_ == at::kHalf || storage.dtype_ == at::kBFloat16;
  const bool is_wanted = options_.keys.zero_quantized_weights ||
                         (options_.keys.zero_quantized_nontrainable_weights && !storage.is_trained_);
  const bool is_norm = storage.persistent_ && !storage.is_matrix_;
  return is_wanted && has_codes && !is_norm && shard_group_.size() > 1;
}

void GatherPool::start_gathers(const std::vector<PartitionedStorage*>& wanted, bool exact) {
  if (!wanted.empty()) check_not_suspended(*wanted.front());
  const OrdinaryTensors ordinary;
  struct Together {
    std::vector<std::shared_ptr<Shard>> shards;
    std::vector<PartitionedStorage*> gathered;
  };
  std::map<Route, Together> by_route;
  for (PartitionedStorage* const storage : wanted) {
    const PartitionedStorage* const source = storage->source_.get();
    if (source != nullptr && source->state_ == State::kWhole && !is_stale(*storage)) {
      set_gathering(*storage, source->whole_.to(storage->dtype_));
      storage->is_rounded_ = source->is_rounded_;
      continue;
    }
    std::shared_ptr<Shard> shard = current_shard(*storage);
    const Route route = route_of(*storage, exact);
    if (route.is_near) shard = storage->secondary_;
    const auto bytes = shard->numel() * static_cast<int64_t>(c10::elementSize(storage->dtype_));
    if (options_.keys.stage3_allgather_sequential || bytes >= kTravelsAlone) {
      start_together({storage}, {shard}, route);
      continue;
    }
    by_route[route].shards.push_back(shard);
    by_route[route].gathered.push_back(storage);
  }
  for (auto& [route, together] : by_route)
    start_together(together.gathered, std::move(together.shards), route);
}

GatherPool::Route GatherPool::route_of(const PartitionedStorage& storage, bool exact) const {
  const Fetch exact_fetch =
      options_.keys.stage3_use_all_reduce_for_fetch_params ? Fetch::kAllReduce : Fetch::kAllGather;
  if (has_secondary(storage) && !(exact && storage.is_secondary_rounded_))
    return {.is_near = true, .fetch = exact_fetch};
  if (exact || !is_quantized_for_passes(storage)) return {.is_near = false, .fetch = exact_fetch};
  const bool is_float8 = options_.keys.zero_quantized_weights_dtype == "fp8";
  return {.is_near = false, .fetch = is_float8 ? Fetch::kFloat8AllGather : Fetch::kQuantizedAllGather};
}

void GatherPool::start_together(const std::vector<PartitionedStorage*>& gathered,
                                std::vector<std::shared_ptr<Shard>> shards, const Route& route) {
  if (gathered.empty()) return;
  const comm::CallSubject subject(subject_of(gathered));
  const auto bucket = std::make_shared<GatherBucket>(
      route.is_near ? options_.secondary_group : shard_group_, std::move(shards), gathered.front()->dtype_,
      gathered.front()->device_, *copies_, buffers_, route.fetch,
      route.is_near ? comm::NodeGroups() : options_.nodes);
  for (size_t place = 0; place < gathered.size(); ++place) {
    set_gathering(*gathered[place], {});
    gathered[place]->gather_ = bucket;
    gathered[place]->place_in_gather_ = place;
    gathered[place]->is_rounded_ =
        route.is_near ? gathered[place]->is_secondary_rounded_ : is_rounded(route.fetch);
  }
}

void GatherPool::set_gathering(PartitionedStorage& storage, at::Tensor whole) {
  storage.whole_ = std::move(whole);
  add_live(storage);
  set_state(storage, State::kGathering);
}

std::string GatherPool::subject_of(const std::vector<PartitionedStorage*>& storages) const {
  const GatherUnit* const unit = unit_of(*storages.front());
  const std::string of_unit =
      unit != nullptr && unit == unit_of(*storages.back()) ? unit->name + ", " : std::string();
  if (storages.size() == 1) return message(of_unit, "parameter '", storages.front()->name_, "'");
  return message(of_unit, storages.size(), " parameters from '", storages.front()->name_, "' to '",
                 storages.back()->name_, "'");
}

void GatherPool::finish_gather(PartitionedStorage& storage) {
  const OrdinaryTensors ordinary;
  try {
    if (storage.gather_) storage.whole_ = storage.gather_->take(storage.place_in_gather_);
  } catch (...) {
    drop(storage);
    throw;
  }
  if (storage.gather_) keep_secondary(storage);
  storage.gather_.reset();
  set_state(storage, State::kWhole);
  storage.fill(storage.whole_.mutable_data_ptr());
}

void GatherPool::set_whole(PartitionedStorage& storage, at::Tensor whole) {
  storage.whole_ = std::move(whole);
  storage.fill(storage.whole_.mutable_data_ptr());
}

bool GatherPool::is_free_to_go(const PartitionedStorage& storage) const {
  return storage.state_ == State::kWhole && storage.num_uses_ == 0 && storage.num_holds_ == 0 &&
         !storage.persistent_ && !storage.is_kept_ && !units_.is_in_current(storage);
}

void GatherPool::make_room(int64_t numel) {
  live_.make_room(numel, [&](PartitionedStorage& storage) {
    if (is_free_to_go(storage)) release(storage);
  });
}

void GatherPool::release(PartitionedStorage& storage) {
  const auto alive = storage.weak_from_this().lock();
  if (!alive) return;  // another thread destroys it, and waits for the lock
  storage.empty();
  if (storage.state_ != State::kPartitioned) drop(storage);
}

void GatherPool::drop(PartitionedStorage& storage) noexcept {
  remove_live(storage);
  set_state(storage, State::kPartitioned);
  storage.gather_.reset();
  storage.whole_.reset();
  storage.is_rounded_ = false;
}

void GatherPool::add_live(PartitionedStorage& storage) {
  storage.place_ = live_.add(storage, counted_numel(storage), storage.persistent_);
  if (GatherUnit* const unit = unit_of(storage); unit != nullptr && storage.is_copy())
    unit->live_copies.insert(&storage);
}

void GatherPool::remove_live(PartitionedStorage& storage) noexcept {
  live_.remove(storage.place_);
  if (GatherUnit* const unit = unit_of(storage); unit != nullptr) unit->live_copies.erase(&storage);
}

void GatherPool::note_used(PartitionedStorage& storage) { live_.note_used(storage.place_); }

void GatherPool::release_all() {
  live_.for_each([&](PartitionedStorage& storage) {
    if (storage.state_ == State::kGathering) abandon_gather(storage);
    if (is_free_to_go(storage) && !stays_for_backward(storage)) release(storage);
  });
}

void GatherPool::abandon_gather(PartitionedStorage& storage) noexcept {
  try {
    finish_gather(storage);
  } catch (const std::exception&) {
    // Nobody wanted it; the group's next collective says what is wrong.
  }
}

void GatherPool::forget(PartitionedStorage& storage) noexcept {
  const std::lock_guard lock(mutex_);
  if (storage.state_ != State::kPartitioned) drop(storage);
  const auto entry = by_key_.find(storage.key_);
  if (entry != by_key_.end() && entry->second == &storage) by_key_.erase(entry);
  for (AheadWindow* const window : {&to_gather_, &to_read_}) window->forget(storage);
  units_.remove_member(storage);
}

void GatherPool::note_destroyed(PartitionedStorage& storage) noexcept {
  const std::lock_guard lock(mutex_);
  forget(storage);
  units_.forget(storage);
}

}  // namespace deepspeed::zero
