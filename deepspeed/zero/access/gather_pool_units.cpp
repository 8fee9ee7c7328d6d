// The part of GatherPool for units, whose parameters are gathered together. It talks to other ranks, and
// decides what will be sent, only when a pass arrives at a unit and when it leaves it: which of the
// parameters are used in between differs from rank to rank.
#include <utility>

#include "deepspeed/base/log.h"
#include "deepspeed/zero/access/gather_pool.h"

namespace deepspeed::zero {

size_t GatherPool::join(std::string name, const std::vector<std::shared_ptr<PartitionedStorage>>& members) {
  const std::lock_guard lock(mutex_);
  const uint64_t key = ++num_params_ * PartitionedStorage::kKeysPerParam;
  const GatherUnit& unit = units_.add(std::move(name), key, members);
  close_look_ahead();
  return unit.index;
}

void GatherPool::on_unit_done(std::function<void(size_t unit)> call) {
  const std::lock_guard lock(mutex_);
  on_unit_done_ = std::move(call);
}

GatherUnit* GatherPool::unit_of(const PartitionedStorage& storage) const {
  return units_.unit_of(storage.is_copy() ? *storage.source_ : storage);
}

bool GatherPool::stays_in_unit(const PartitionedStorage& storage) const {
  const GatherUnit* const unit = unit_of(storage);
  return unit != nullptr && (unit == units_.current() || storage.num_holds_ > 0);
}

void GatherPool::arrive_at(PartitionedStorage& storage) {
  GatherUnit* const unit = unit_of(storage);
  GatherUnit* const left = units_.set_current(unit);
  PartitionedStorage* const latest = live_.latest();
  const UseTrace::Entry use = unit != nullptr ? UseTrace::Entry{unit->key, unit->numel}
                                              : UseTrace::Entry{storage.key_, storage.numel_};
  if (coordinator_.note_use(use.key, use.numel) && options_.keys.log_trace_cache_warnings) {
    log::warning("[zero] a pass uses ", unit != nullptr ? unit->name : storage.name_,
                 " where earlier ones used something else: what follows is not gathered ahead, and recorded "
                 "anew");
  }
  if (latest != nullptr && latest != &storage && is_done(*latest)) release(*latest);
  if (left != nullptr) leave(*left);
  if (unit != nullptr) gather(*unit);
}

void GatherPool::leave(GatherUnit& unit) {
  // Copies of it are of this rank alone, and made anew from what is gathered.
  const std::vector<PartitionedStorage*> copies(unit.live_copies.begin(), unit.live_copies.end());
  for (PartitionedStorage* const copy : copies) {
    if (is_free_to_go(*copy)) release(*copy);
  }
  if (!coordinator_.stays(unit.key)) {
    for (PartitionedStorage* const member : unit.members) {
      if (is_free_to_go(*member)) release(*member);
    }
  }
  if (on_unit_done_ && coordinator_.is_over_in_backward(unit.key)) on_unit_done_(unit.index);
}

void GatherPool::gather(GatherUnit& unit) {
  std::vector<PartitionedStorage*> missing;
  int64_t numel = 0;
  for (PartitionedStorage* const member : unit.members) {
    if (!member->has_storage()) continue;
    if (member->state_ != State::kPartitioned) {
      note_used(*member);
      continue;
    }
    missing.push_back(member);
    numel += member->numel_;
  }
  if (!missing.empty()) {
    make_room(numel);
    start_gathers(missing);
  }
  for (PartitionedStorage* const member : unit.members) {
    if (member->state_ == State::kGathering) finish_gather(*member);
  }
}

std::vector<PartitionedStorage*> GatherPool::storages_of(const std::vector<uint64_t>& keys) const {
  std::vector<PartitionedStorage*> next;
  for (const uint64_t key : keys) {
    if (const GatherUnit* const unit = units_.find(key)) {
      next.insert(next.end(), unit->members.begin(), unit->members.end());
    } else if (const auto entry = by_key_.find(key); entry != by_key_.end()) {
      next.push_back(entry->second);
    }
  }
  return next;
}

int64_t GatherPool::counted_numel(const PartitionedStorage& storage) const {
  return storage.is_copy() && unit_of(storage) != nullptr ? 0 : storage.numel_;
}

}  // namespace deepspeed::zero
