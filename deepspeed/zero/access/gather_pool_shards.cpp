// The part of GatherPool for parameters that GatheredParameters holds whole, and for shards that change.
#include <algorithm>
#include <utility>
#include <vector>

#include <c10/core/GradMode.h>
#include <c10/core/InferenceMode.h>

#include "deepspeed/base/error.h"
#include "deepspeed/base/interval.h"
#include "deepspeed/comm/watch/call_subject.h"
#include "deepspeed/zero/access/gather_pool.h"

namespace deepspeed::zero {

void GatherPool::hold(PartitionedStorage& storage, bool writable) {
  const std::lock_guard lock(mutex_);
  if (!storage.has_storage()) {
    raise<UsageError>("parameter '", storage.name_, "' got other data since it was partitioned");
  }
  if (writable && storage.is_copy()) {
    raise<UsageError>("'", storage.name_,
                      "' is a copy of a partitioned parameter; write the parameter itself");
  }
  if (storage.writable_) {
    raise<UsageError>("parameter '", storage.name_,
                      "' is inside a zero::GatheredParameters that writes already; none can be nested in it");
  }
  make_exactly_whole(storage);
  if (writable && storage.is_rounded_) {
    raise<UsageError>("parameter '", storage.name_,
                      "' is in use, rounded as zero_quantized_weights sends it; ",
                      "write it between passes, where it is gathered as it is");
  }
  if (writable && storage.num_holds_ > 0) storage.before_ = storage.whole_.clone();
  if (writable && is_its_shard(storage)) set_whole(storage, storage.whole_.clone());
  ++storage.num_holds_;
  storage.writable_ = writable;
  storage.was_written_ = false;
}

void GatherPool::write_back(PartitionedStorage& storage, int modifier_rank) {
  const std::lock_guard lock(mutex_);
  const c10::NoGradGuard no_grad;
  const comm::CallSubject subject("parameter '" + storage.name_ + "'");
  if (all_ranks().size() > 1) all_ranks().broadcast(storage.whole_, modifier_rank);
  const int64_t numel = storage.shard_->numel();
  storage.shard_->write(storage.whole_.narrow(0, shard_group_.rank() * numel, numel));
  note_new_version(storage);
  storage.was_set_ = true;
  if (is_its_shard(storage)) set_whole(storage, storage.shard_->memory());
}

bool GatherPool::is_its_shard(const PartitionedStorage& storage) const {
  if (shard_group_.size() > 1 || storage.is_copy()) return false;
  const at::Tensor memory = storage.shard_->memory();
  return memory.defined() && memory.device() == storage.device_;
}

void GatherPool::leave_to_aliases(PartitionedStorage& storage, const at::Tensor& param) {
  const std::lock_guard lock(mutex_);
  if (num_windows_ > 0 || storage.num_uses_ > 0) return;
  const c10::InferenceMode normal(false);
  const c10::NoGradGuard no_grad;
  // Others may have pointers into what is whole, so that it is left to them, unless it is the shard, which
  // changes.
  const at::Tensor seen = storage.whole_, copy = seen.clone();
  const bool is_shard = is_its_shard(storage);
  rearm_apart(param, is_shard ? copy : seen, seen);
  set_whole(storage, is_shard ? seen : copy);
}

void GatherPool::drop_hold(PartitionedStorage& storage, bool forget_writes) noexcept {
  const std::lock_guard lock(mutex_);
  --storage.num_holds_;
  storage.writable_ = false;
  const at::Tensor before = std::exchange(storage.before_, at::Tensor());
  if (storage.num_holds_ > 0) {  // whoever reads it outside goes on with what it had
    if (forget_writes && before.defined())
      set_whole(storage, is_its_shard(storage) ? storage.shard_->memory() : before);
    return;
  }
  const bool is_spoilt = forget_writes && storage.num_uses_ == 0;
  // Passes see rounded values, whoever looked at the exact ones before.
  const bool is_too_exact = num_windows_ == 0 && storage.num_uses_ == 0 && storage.persistent_ &&
                            storage.state_ == State::kWhole && is_quantized_for_passes(storage);
  if (is_spoilt || is_too_exact || (num_windows_ == 0 && is_free_to_go(storage))) release(storage);
}

void GatherPool::shard_changed(PartitionedStorage& storage) {
  const std::lock_guard lock(mutex_);
  note_new_version(storage);
  if (is_its_shard(storage) || storage.state_ == State::kPartitioned) return;
  if (storage.num_uses_ > 0 || storage.num_holds_ > 0) {
    raise<UsageError>("parameter '", storage.name_,
                      "' was updated while it is gathered; leave zero::GatheredParameters before step()");
  }
  if (storage.state_ == State::kGathering) finish_gather(storage);
  release(storage);
}

void GatherPool::check_settable(const PartitionedStorage& storage) const {
  const std::lock_guard lock(mutex_);
  if (storage.is_copy()) {
    raise<UsageError>("'", storage.name_, "' is a copy of a partitioned parameter; set the parameter itself");
  }
  check_not_suspended(storage);
  if (storage.num_holds_ > 0) {
    raise<UsageError>("parameter '", storage.name_,
                      "' got other values while it is gathered; leave zero::GatheredParameters first");
  }
}

void GatherPool::set_values(PartitionedStorage& storage, const at::Tensor& values) {
  const std::lock_guard lock(mutex_);
  const c10::NoGradGuard no_grad;
  check_settable(storage);
  if (values.numel() != storage.numel_) {
    raise<UsageError>("parameter '", storage.name_, "' has ", storage.numel_, " elements, got values of ",
                      values.numel());
  }
  const Interval own = shard_elements(storage.numel_, shard_group_.size(), shard_group_.rank());
  set_shard(storage, values.detach().reshape({-1}).narrow(0, own.begin, own.numel()));
}

void GatherPool::set_shard(PartitionedStorage& storage, const at::Tensor& values) {
  const std::lock_guard lock(mutex_);
  const c10::NoGradGuard no_grad;
  check_settable(storage);
  if (values.numel() > storage.shard_->numel()) {
    raise<UsageError>("parameter '", storage.name_, "' has shards of ", storage.shard_->numel(),
                      " elements, got values of ", values.numel());
  }
  storage.shard_->write(values.detach().reshape({-1}));
  storage.was_set_ = true;
  shard_changed(storage);
}

bool GatherPool::take_was_set(PartitionedStorage& storage) {
  const std::lock_guard lock(mutex_);
  return std::exchange(storage.was_set_, false);
}

void GatherPool::gather_persistent() {
  const std::lock_guard lock(mutex_);
  if (!lets_read_persistent_ || !suspended_.empty()) return;
  std::vector<PartitionedStorage*> missing = missing_persistent();
  while (!missing.empty()) {
    const at::ScalarType dtype = missing.front()->dtype_;
    const auto others = std::ranges::stable_partition(
        missing, [dtype](const PartitionedStorage* storage) { return storage->dtype_ == dtype; });
    const std::vector<PartitionedStorage*> of_dtype(missing.begin(), others.begin());
    start_gathers(of_dtype);
    for (PartitionedStorage* const storage : of_dtype) make_whole(*storage);
    missing.erase(missing.begin(), others.begin());
  }
}

std::vector<PartitionedStorage*> GatherPool::missing_persistent() const {
  std::vector<PartitionedStorage*> missing;
  for (const auto& [key, storage] : by_key_) {
    if (storage->persistent_ && storage->state_ == State::kPartitioned) missing.push_back(storage);
  }
  std::ranges::sort(missing, {}, &PartitionedStorage::key_);
  return missing;
}

void GatherPool::empty_cache() {
  const std::lock_guard lock(mutex_);
  live_.for_each([&](PartitionedStorage& storage) {
    if (storage.state_ == State::kGathering) abandon_gather(storage);
    const bool is_idle = storage.state_ == State::kWhole && storage.num_uses_ == 0;
    if (is_idle && storage.num_holds_ == 0 && !storage.is_kept_) release(storage);
  });
}

void GatherPool::suspend(std::string why) {
  const std::lock_guard lock(mutex_);
  empty_cache();
  if (!live_.empty()) {
    raise<UsageError>("parameter '", live_.oldest()->name_,
                      "' is gathered; leave zero::GatheredParameters, and run backward, first");
  }
  for (const auto& [key, storage] : by_key_) storage->secondary_.reset();
  suspended_ = std::move(why);
}

void GatherPool::resume() {
  const std::lock_guard lock(mutex_);
  suspended_.clear();
}

void GatherPool::check_not_suspended(const PartitionedStorage& storage) const {
  if (!suspended_.empty()) raise<UsageError>("parameter '", storage.name_, "' cannot be used: ", suspended_);
}

}  // namespace deepspeed::zero
