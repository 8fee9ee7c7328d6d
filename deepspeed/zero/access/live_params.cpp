#include "deepspeed/zero/access/live_params.h"

#include <utility>

namespace deepspeed::zero {
namespace {

void fill(const Gatherable& param) {
  if (const auto record = param.record.lock()) record->fill(param.whole.mutable_data_ptr());
}

}  // namespace

int64_t LiveParams::counted_numel(const Gatherable& param) {
  return param.is_copy() && param.unit_of_owner() != nullptr ? 0 : param.numel;
}

void LiveParams::set_state(Gatherable& param, Gatherable::State state) {
  param.state = state;
  look_ahead_.recount(param);
}

void LiveParams::add(Gatherable& param, at::Tensor whole) {
  param.whole = std::move(whole);
  param.place = set_.add(param, counted_numel(param), param.traits.is_persistent);
  if (GatherUnit* const unit = param.unit_of_owner(); unit != nullptr && param.is_copy())
    unit->live_copies.insert(&param);
  set_state(param, Gatherable::State::kGathering);
}

void LiveParams::set_whole(Gatherable& param) {
  param.gather.reset();
  set_state(param, Gatherable::State::kWhole);
  fill(param);
}

void LiveParams::replace(Gatherable& param, at::Tensor whole) {
  param.whole = std::move(whole);
  fill(param);
}

void LiveParams::make_room(int64_t numel) {
  set_.make_room(numel, [&](Gatherable& param) {
    if (may_go(param)) release(param);
  });
}

void LiveParams::release(Gatherable& param) {
  const auto record = param.record.lock();
  if (!record) return;  // another thread is destroying it, and waits for the lock
  record->empty();
  if (param.state != Gatherable::State::kPartitioned) drop(param);
}

void LiveParams::drop(Gatherable& param) noexcept {
  set_.remove(param.place);
  if (GatherUnit* const unit = param.unit_of_owner()) unit->live_copies.erase(&param);
  set_state(param, Gatherable::State::kPartitioned);
  param.gather.reset();
  param.whole.reset();
  param.is_rounded = false;
}

bool LiveParams::may_go(const Gatherable& param) const {
  return param.state == Gatherable::State::kWhole && !param.is_in_use() && !param.traits.is_persistent &&
         !param.is_kept && !params_.is_in_current(param);
}

bool LiveParams::is_done(const Gatherable& param) const {
  if (!look_ahead_.is_in_pass()) return may_go(param);
  if (param.unit != nullptr) return false;  // it is released with its unit
  return may_go_after_pass(param) && !look_ahead_.stays(param.key);
}

}  // namespace deepspeed::zero
