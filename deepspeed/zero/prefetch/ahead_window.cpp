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
    slot_begin_.push_back(slot_begin_.back() + source_.num_params(trace.entry(place).key));
  slots_.reset(slot_begin_.back());
  params_.assign(slot_begin_.back(), nullptr);
  slot_of_.clear();
}

void AheadWindow::close() {
  if (!window_.is_open()) return;
  window_.close();
  slots_.reset(0);
  params_.clear();
  slot_of_.clear();
}

void AheadWindow::enter(size_t place, uint64_t key) {
  size_t slot = slot_begin_[place];
  for (Gatherable* const param : source_.params(key)) put(slot++, *param);
}

void AheadWindow::leave(size_t place) {
  for (size_t slot = slot_begin_[place]; slot < slot_begin_[place + 1]; ++slot) clear(slot);
}

void AheadWindow::put(size_t slot, Gatherable& param) {
  clear(slot);
  params_[slot] = &param;
  slot_of_[&param] = slot;
  slots_.set(slot, source_.item(param));
}

void AheadWindow::clear(size_t slot) {
  if (params_[slot] == nullptr) return;
  slots_.set(slot, {});
  slot_of_.erase(params_[slot]);
  params_[slot] = nullptr;
}

void AheadWindow::recount(const Gatherable& param) {
  const auto slot = slot_of_.find(&param);
  if (slot != slot_of_.end()) slots_.set(slot->second, source_.item(param));
}

void AheadWindow::replace(const UseTrace* trace, uint64_t key, Gatherable& param) {
  const auto place = trace != nullptr ? trace->next_of(key) : std::nullopt;
  if (place && window_.reaches(*place)) put(slot_begin_[*place], param);
}

void AheadWindow::forget(const Gatherable& param) {
  const auto slot = slot_of_.find(&param);
  if (slot != slot_of_.end()) clear(slot->second);
}

}  // namespace deepspeed::zero
