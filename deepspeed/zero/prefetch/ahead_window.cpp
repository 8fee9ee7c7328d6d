#include "deepspeed/zero/prefetch/ahead_window.h"

namespace deepspeed::zero {

void AheadWindow::follow(const UseTrace* trace) {
  if (!is_used_) return;
  if (trace == nullptr) return close();
  if (!window_.is_open()) open(*trace);
  window_.follow(
      *trace, [&](size_t place) { leave(place); },
      [&](size_t place) { enter(place, trace->entry(place).key); });
}

void AheadWindow::open(const UseTrace& trace) {
  slot_begin_.assign(1, 0);
  for (size_t place = 0; place < trace.size(); ++place)
    slot_begin_.push_back(slot_begin_.back() + source_.num_storages(trace.entry(place).key));
  slots_.reset(slot_begin_.back());
  storages_.assign(slot_begin_.back(), nullptr);
  slot_of_.clear();
}

void AheadWindow::close() {
  if (!window_.is_open()) return;
  window_.close();
  slots_.reset(0);
  storages_.clear();
  slot_of_.clear();
}

void AheadWindow::enter(size_t place, uint64_t key) {
  size_t slot = slot_begin_[place];
  for (PartitionedStorage* const storage : source_.storages(key)) put(slot++, *storage);
}

void AheadWindow::leave(size_t place) {
  for (size_t slot = slot_begin_[place]; slot < slot_begin_[place + 1]; ++slot) clear(slot);
}

void AheadWindow::put(size_t slot, PartitionedStorage& storage) {
  clear(slot);
  storages_[slot] = &storage;
  slot_of_[&storage] = slot;
  slots_.set(slot, source_.item(storage));
}

void AheadWindow::clear(size_t slot) {
  if (storages_[slot] == nullptr) return;
  slots_.set(slot, {});
  slot_of_.erase(storages_[slot]);
  storages_[slot] = nullptr;
}

void AheadWindow::recount(const PartitionedStorage& storage) {
  const auto slot = slot_of_.find(&storage);
  if (slot != slot_of_.end()) slots_.set(slot->second, source_.item(storage));
}

void AheadWindow::replace(const UseTrace* trace, uint64_t key, PartitionedStorage& storage) {
  const auto place = trace != nullptr ? trace->next_of(key) : std::nullopt;
  if (place && window_.reaches(*place)) put(slot_begin_[*place], storage);
}

void AheadWindow::forget(const PartitionedStorage& storage) {
  const auto slot = slot_of_.find(&storage);
  if (slot != slot_of_.end()) clear(slot->second);
}

}  // namespace deepspeed::zero
