// The part of GatherPool that gathers parameters, and reads them from a disk, ahead of their use.
#include <exception>

#include "deepspeed/zero/access/gather_pool.h"

namespace deepspeed::zero {

AheadWindow GatherPool::make_window(int64_t max_numel, bool holds_next,
                                    AheadSlots::Item (*item)(const PartitionedStorage&)) {
  const auto num_storages = [this](uint64_t key) {
    const GatherUnit* const unit = units_.find(key);
    return unit != nullptr ? unit->members.size() : size_t{1};
  };
  return {max_numel, holds_next, {num_storages, [this](uint64_t key) { return storages_of({key}); }, item}};
}

AheadSlots::Item GatherPool::item_to_gather(const PartitionedStorage& storage) {
  using Kind = AheadSlots::Kind;
  if (is_stale(storage)) return {};
  const Kind kind = storage.state_ == State::kPartitioned ? Kind::kMissing
                    : storage.state_ == State::kGathering ? Kind::kGathering
                                                          : Kind::kWhole;
  return {kind, storage.numel_, static_cast<int>(storage.dtype_)};
}

AheadSlots::Item GatherPool::item_to_read(const PartitionedStorage& storage) {
  if (storage.state_ != State::kPartitioned || is_stale(storage) || has_secondary(storage)) return {};
  if (current_shard(storage)->memory().defined()) return {};
  return {AheadSlots::Kind::kMissing, storage.numel_};
}

void GatherPool::set_state(PartitionedStorage& storage, State state) {
  storage.state_ = state;
  for (AheadWindow* const window : {&to_gather_, &to_read_}) window->recount(storage);
}

// Makes all copies of the storage stale, wherever they are.
void GatherPool::note_new_version(PartitionedStorage& storage) {
  ++storage.version_;
  close_look_ahead();
}

void GatherPool::close_look_ahead() {
  to_gather_.close();
  to_read_.close();
}

void GatherPool::look_ahead() {
  for (AheadWindow* const window : {&to_gather_, &to_read_}) window->follow(coordinator_.followed());
  read_ahead();  // all that is to be gathered at one time
  prefetch();
  read_ahead();  // into the buffers that this has left
}

void GatherPool::prefetch() {
  const AheadSlots& slots = to_gather_.slots();
  const int64_t room = live_.room();
  std::vector<PartitionedStorage*> wanted;
  for (const size_t slot :
       options_.keys.stage3_allgather_sequential ? slots.next_to_gather(room) : slots.to_gather(room)) {
    PartitionedStorage& storage = to_gather_.storage(slot);
    if (storage.has_storage()) wanted.push_back(&storage);
  }
  if (!wanted.empty()) start_gathers(wanted);
}

void GatherPool::read_ahead() {
  const AheadSlots& slots = to_read_.slots();
  for (size_t slot = slots.first_missing(); slot < slots.size(); slot = slots.first_missing(slot + 1)) {
    if (!start_read(to_read_.storage(slot))) return;
  }
}

void GatherPool::read_for_next_pass() {
  for (const PartitionedStorage* const storage :
       storages_of(coordinator_.next_pass(options_.read_ahead_numel))) {
    if (storage->state_ != State::kPartitioned || is_stale(*storage) || has_secondary(*storage)) continue;
    if (!start_read(*storage)) return;
  }
}

bool GatherPool::start_read(const PartitionedStorage& storage) {
  try {
    return current_shard(storage)->start_read();
  } catch (const std::exception&) {
    return false;  // the read itself says what is wrong
  }
}

}  // namespace deepspeed::zero
