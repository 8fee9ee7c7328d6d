#include "deepspeed/zero/access/look_ahead.h"

#include <exception>

#include "deepspeed/base/log.h"

namespace deepspeed::zero {
namespace {

AheadSlots::Item item_to_gather(const Gatherable& param) {
  using Kind = AheadSlots::Kind;
  if (param.is_stale()) return {};
  const Kind kind = param.state == Gatherable::State::kPartitioned ? Kind::kMissing
                    : param.state == Gatherable::State::kGathering ? Kind::kGathering
                                                                   : Kind::kWhole;
  return {kind, param.numel, static_cast<int>(param.dtype)};
}

/// Returns whether the next gather of the parameter reads this rank's shard.
bool needs_its_shard(const Gatherable& param) {
  return param.state == Gatherable::State::kPartitioned && !param.is_stale() && !param.has_secondary();
}

AheadSlots::Item item_to_read(const Gatherable& param) {
  if (!needs_its_shard(param) || param.current_shard()->memory().defined()) return {};
  return {AheadSlots::Kind::kMissing, param.numel};
}

/// Starts reading the parameter's shard from a disk. Returns false if no buffer is free.
bool start_read(const Gatherable& param) {
  try {
    return param.current_shard()->start_read();
  } catch (const std::exception&) {
    return false;  // the read itself will report the error
  }
}

}  // namespace

LookAhead::LookAhead(const config::ParamGatherConfig& keys, int64_t read_ahead_numel,
                     const ParamTable& params)
    : params_(params),
      gathers_one_by_one_(keys.stage3_allgather_sequential),
      warns_of_new_order_(keys.log_trace_cache_warnings),
      read_ahead_numel_(read_ahead_numel),
      coordinator_(keys.stage3_max_reuse_distance),
      to_gather_(make_window(keys.stage3_prefetch_bucket_size, /*holds_next=*/true, &item_to_gather)),
      to_read_(make_window(read_ahead_numel, /*holds_next=*/false, &item_to_read)) {}

AheadWindow LookAhead::make_window(int64_t max_numel, bool holds_next,
                                   AheadSlots::Item (*item)(const Gatherable&)) {
  return {max_numel,
          holds_next,
          {[this](uint64_t key) { return params_.num_params(key); },
           [this](uint64_t key) { return params_.params_of({key}); }, item}};
}

void LookAhead::begin_pass(AccessMode mode) {
  look_anew();
  coordinator_.begin_pass(mode);
  is_in_pass_ = true;
}

void LookAhead::end_pass() {
  look_anew();
  coordinator_.end_pass();
  is_in_pass_ = false;
}

void LookAhead::note_use(const Gatherable& param) {
  const GatherUnit* const unit = param.unit_of_owner();
  const UseTrace::Entry use =
      unit != nullptr ? UseTrace::Entry{unit->key, unit->numel} : UseTrace::Entry{param.key, param.numel};
  if (!coordinator_.note_use(use.key, use.numel) || !warns_of_new_order_) return;
  log::warning(
      "[zero] a pass uses ", unit != nullptr ? unit->name : param.name,
      " where earlier ones used something else: what follows is not gathered ahead, and recorded again");
}

std::vector<Gatherable*> LookAhead::to_gather(int64_t room) {
  for (AheadWindow* const window : {&to_gather_, &to_read_}) window->follow(coordinator_.followed());
  read_ahead();  // for everything that is gathered at one time
  const AheadSlots& slots = to_gather_.slots();
  std::vector<Gatherable*> wanted;
  for (const size_t slot : gathers_one_by_one_ ? slots.next_to_gather(room) : slots.to_gather(room)) {
    Gatherable& param = to_gather_.param(slot);
    const auto record = param.record.lock();
    if (record && record->has_storage()) wanted.push_back(&param);
  }
  return wanted;
}

void LookAhead::read_ahead() {
  const AheadSlots& slots = to_read_.slots();
  for (size_t slot = slots.first_missing(); slot < slots.size(); slot = slots.first_missing(slot + 1)) {
    if (!start_read(to_read_.param(slot))) return;
  }
}

void LookAhead::read_for_next_pass() {
  for (const Gatherable* const param : params_.params_of(coordinator_.next_pass(read_ahead_numel_))) {
    if (needs_its_shard(*param) && !start_read(*param)) return;
  }
}

void LookAhead::recount(const Gatherable& param) {
  for (AheadWindow* const window : {&to_gather_, &to_read_}) window->recount(param);
}

void LookAhead::replace(Gatherable& copy) {
  for (AheadWindow* const window : {&to_gather_, &to_read_})
    window->replace(coordinator_.followed(), copy.key, copy);
}

void LookAhead::forget(const Gatherable& param) noexcept {
  for (AheadWindow* const window : {&to_gather_, &to_read_}) window->forget(param);
}

void LookAhead::look_anew() {
  to_gather_.close();
  to_read_.close();
}

// With 16-bit parameters, also under autocast, memory matters most. A model trained that way keeps nothing
// whole between its passes. Each pass gathers units again.
bool LookAhead::stays_for_backward(const Gatherable& param) const {
  const bool may_stay = param.dtype == at::kFloat && !param.is_copy() && param.unit == nullptr;
  return may_stay && coordinator_.stays_for_backward(param.key);
}

}  // namespace deepspeed::zero
