// The part of GatherPool for code between passes: it holds parameters whole, sets their values and gives them
// back.
//
// hold() makes a parameter whole with the exact values of the shards. A writable hold gets its own memory if
// the gathered memory is read elsewhere. write_back() sends one rank's values to all and fills the shard.
// drop_hold() restores what passes expect. give_back() makes ordinary tensors, a limited number of elements
// at a time.
//
// A write under holds that are not writable is seen until the last of them ends (spoil, end_spoilt). Ranks do
// not communicate about it: what all of them would release is released, and what stays whole between passes
// gets its former memory back. Writes outside of all this go into the shard (take_write). Ranks compare them
// when they next meet.
#include <algorithm>
#include <exception>
#include <map>
#include <optional>
#include <sstream>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include <c10/core/GradMode.h>
#include <c10/core/InferenceMode.h>

#include "deepspeed/base/error.h"
#include "deepspeed/base/interval.h"
#include "deepspeed/base/log.h"
#include "deepspeed/base/message.h"
#include "deepspeed/comm/watch/call_subject.h"
#include "deepspeed/zero/access/gather_pool.h"
#include "deepspeed/zero/storage/fingerprint.h"

namespace deepspeed::zero {
namespace {

using State = Gatherable::State;

// Elements that are gathered at a time, in addition to those already whole.
constexpr int64_t kGivenBackAtOnce = 16 << 20;

/// Describes the first difference between ranks' writes; absent if they are equal. of_ranks: from each rank,
/// a line per parameter with fingerprint and name.
std::optional<std::string> difference_of_writes(const std::vector<std::string>& of_ranks) {
  const auto lines_of = [](const std::string& text) {
    std::map<std::string, std::string> lines;
    std::istringstream in(text);
    for (std::string hash, name; in >> hash && std::getline(in >> std::ws, name);) lines.emplace(name, hash);
    return lines;
  };
  const auto first = lines_of(of_ranks.front());
  for (size_t rank = 1; rank < of_ranks.size(); ++rank) {
    const auto other = lines_of(of_ranks[rank]);
    for (const auto& [all, part, has, lacks] :
         {std::tuple(&first, &other, size_t{0}, rank), std::tuple(&other, &first, rank, size_t{0})}) {
      for (const auto& [name, hash] : *all) {
        const auto found = part->find(name);
        if (found != part->end() && found->second == hash) continue;
        return message("parameter '", name, "' was written outside of a zero::GatheredParameters on rank ",
                       has, found == part->end() ? ", and not on rank " : ", and with other values on rank ",
                       lacks,
                       "; write the same values on all ranks, or inside a zero::GatheredParameters with a "
                       "modifier_rank, whose values all ranks take over");
      }
    }
  }
  return std::nullopt;
}

}  // namespace

void GatherPool::hold(Gatherable& param, bool writable) {
  const std::lock_guard lock(mutex_);
  if (num_windows_ == 0) compare_writes();
  if (!param.record.lock()->has_storage()) {
    raise<UsageError>("parameter '", param.name, "' got other data since it was partitioned");
  }
  if (writable && param.is_copy()) {
    raise<UsageError>("'", param.name, "' is a copy of a partitioned parameter; write the parameter itself");
  }
  if (writable && param.is_writable) {
    raise<UsageError>("parameter '", param.name,
                      "' is inside a zero::GatheredParameters with a modifier_rank already; a nested one "
                      "cannot have a modifier_rank");
  }
  gatherer_.make_exactly_whole(param);
  if (writable && param.is_rounded) {
    raise<UsageError>("parameter '", param.name, "' is in use, rounded as zero_quantized_weights sends it; ",
                      "write it between passes, where it is gathered as it is");
  }
  if (writable && param.num_holds > 0) param.before_write = param.whole.clone();
  if (writable && is_its_shard(param)) live_.replace(param, param.whole.clone());
  ++param.num_holds;
  if (!writable) return;
  param.is_writable = true;
  param.was_written = false;
}

void GatherPool::spoil(Gatherable& param) {
  const bool is_shard = is_its_shard(param) && param.whole.is_alias_of(param.shard->memory());
  if (is_shard || (!param.is_spoilt && param.traits.is_persistent)) {
    param.unspoilt = param.whole;
    live_.replace(param, param.whole.clone());
  }
  param.is_spoilt = true;
}

void GatherPool::end_spoilt(Gatherable& param) {
  const at::Tensor before = std::exchange(param.unspoilt, at::Tensor());
  param.is_spoilt = false;
  warn_of_lost_write(param.name);
  if (before.defined()) {
    live_.replace(param, before);
  } else {
    live_.release(param);
  }
}

void GatherPool::warn_of_lost_write(const std::string& name) noexcept {
  const std::lock_guard lock(mutex_);
  if (std::exchange(has_warned_of_lost_write_, true)) return;
  try {
    log::warning(
        "[zero] parameter '", name,
        "' was written inside a GatheredParameters without a modifier_rank: at its end it has its former "
        "values again; to keep what is written, give it a modifier_rank, the rank whose values all ranks "
        "take over. This is logged once");
  } catch (const std::exception&) {
    // The values are correct without the warning.
  }
}

void GatherPool::write_back(Gatherable& param, int modifier_rank) {
  const std::lock_guard lock(mutex_);
  const c10::NoGradGuard no_grad;
  const comm::CallSubject subject("parameter '" + param.name + "'");
  if (all_ranks().size() > 1) all_ranks().broadcast(param.whole, modifier_rank);
  const int64_t numel = param.shard->numel();
  param.shard->write(param.whole.narrow(0, shard_group().rank() * numel, numel));
  note_new_version(param);
  param.was_set = true;
  param.is_spoilt = false;
  param.unspoilt.reset();
  if (is_its_shard(param)) live_.replace(param, param.shard->memory());
}

bool GatherPool::is_its_shard(const Gatherable& param) const {
  if (shard_group().size() > 1 || param.is_copy()) return false;
  const at::Tensor memory = param.shard->memory();
  return memory.defined() && memory.device() == param.device;
}

void GatherPool::leave_to_aliases(Gatherable& param, const at::Tensor& tensor) {
  const std::lock_guard lock(mutex_);
  if (num_windows_ > 0 || param.num_uses > 0) return;
  const c10::InferenceMode normal(false);
  const c10::NoGradGuard no_grad;
  // Other tensors may have pointers into the gathered memory, so they keep it, unless it is the shard, which
  // changes.
  const at::Tensor seen = param.whole, copy = seen.clone();
  const bool is_shard = is_its_shard(param);
  rearm_apart(tensor, is_shard ? copy : seen, seen);
  live_.replace(param, is_shard ? seen : copy);
}

void GatherPool::drop_hold(Gatherable& param, bool writable, bool forget_writes) noexcept {
  const std::lock_guard lock(mutex_);
  --param.num_holds;
  if (writable) param.is_writable = false;
  if (!writable && param.num_holds > 0) return;
  const at::Tensor before = std::exchange(param.before_write, at::Tensor());
  if (param.num_holds > 0) {  // readers outside continue with the old values
    if (forget_writes && before.defined())
      live_.replace(param, is_its_shard(param) && !param.is_spoilt ? param.shard->memory() : before);
    return;
  }
  if (param.is_spoilt && param.num_uses == 0) return end_spoilt(param);
  const bool is_spoilt = forget_writes && param.num_uses == 0;
  // Passes use rounded values, even if the exact ones were gathered before.
  const bool is_too_exact = num_windows_ == 0 && param.num_uses == 0 && param.traits.is_persistent &&
                            param.state == State::kWhole && gatherer_.is_quantized_for_passes(param);
  if (is_spoilt || is_too_exact || (num_windows_ == 0 && live_.may_go(param))) live_.release(param);
}

void GatherPool::take_write(Gatherable& param) {
  param.is_rewritten = false;
  const c10::NoGradGuard no_grad;
  const int64_t numel = param.shard->numel();
  if (!is_its_shard(param)) param.shard->write(param.whole.narrow(0, shard_group().rank() * numel, numel));
  note_new_version(param);
  param.was_set = true;
  if (all_ranks().size() == 1) return;
  const auto is_same = [&](const auto& record) { return record.lock() == param.record.lock(); };
  if (std::ranges::none_of(rewritten_, is_same)) rewritten_.push_back(param.record);
}

void GatherPool::compare_writes() {
  const std::lock_guard lock(mutex_);
  std::vector<const Gatherable*> written;
  std::vector<std::shared_ptr<StorageRecord>> alive;
  for (const auto& record : rewritten_) {
    const auto storage = std::static_pointer_cast<PartitionedStorage>(record.lock());
    if (!storage || !storage->has_storage() || storage->param().state != State::kWhole) continue;
    written.push_back(&storage->param());
    alive.push_back(storage);
  }
  if (written.empty()) return rewritten_.clear();
  const auto by_key = [](const Gatherable* one, const Gatherable* other) { return one->key < other->key; };
  std::ranges::sort(written, by_key);
  std::string own;
  for (const Gatherable* const param : written)
    own += message(fingerprint(param->whole.narrow(0, 0, param->numel)), ' ', param->name, '\n');
  const comm::CallSubject subject("parameter '" + written.front()->name + "', which was written outside of " +
                                  "a zero::GatheredParameters");
  const std::vector<std::string> of_ranks = all_ranks().all_gather_text(own);
  if (const auto problem = difference_of_writes(of_ranks)) raise<UsageError>(*problem);
  rewritten_.clear();
}

// Copies of the parameter become stale.
void GatherPool::note_new_version(Gatherable& param) {
  ++param.version;
  look_ahead_.look_anew();
}

void GatherPool::shard_changed(PartitionedStorage& storage) {
  const std::lock_guard lock(mutex_);
  Gatherable& param = storage.param();
  note_new_version(param);
  if (is_its_shard(param) || param.state == State::kPartitioned) return;
  if (param.is_in_use()) {
    raise<UsageError>("parameter '", param.name,
                      "' was updated while it is gathered; leave zero::GatheredParameters before step()");
  }
  if (param.state == State::kGathering) gatherer_.finish(param);
  live_.release(param);
}

void GatherPool::check_settable(const PartitionedStorage& storage) const {
  const std::lock_guard lock(mutex_);
  const Gatherable& param = storage.param();
  if (param.is_copy()) {
    raise<UsageError>("'", param.name, "' is a copy of a partitioned parameter; set the parameter itself");
  }
  gatherer_.check_not_suspended(param);
  if (param.num_holds > 0) {
    raise<UsageError>("parameter '", param.name,
                      "' got other values while it is gathered; leave zero::GatheredParameters first");
  }
}

void GatherPool::set_values(PartitionedStorage& storage, const at::Tensor& values) {
  const std::lock_guard lock(mutex_);
  const c10::NoGradGuard no_grad;
  check_settable(storage);
  const int64_t numel = storage.numel();
  if (values.numel() != numel) {
    raise<UsageError>("parameter '", storage.name(), "' has ", numel, " elements, got values of ",
                      values.numel());
  }
  const Interval own = shard_elements(numel, shard_group().size(), shard_group().rank());
  set_shard(storage, values.detach().reshape({-1}).narrow(0, own.begin, own.numel()));
}

void GatherPool::set_shard(PartitionedStorage& storage, const at::Tensor& values) {
  const std::lock_guard lock(mutex_);
  const c10::NoGradGuard no_grad;
  check_settable(storage);
  if (values.numel() > storage.shard()->numel()) {
    raise<UsageError>("parameter '", storage.name(), "' has shards of ", storage.shard()->numel(),
                      " elements, got values of ", values.numel());
  }
  storage.shard()->write(values.detach().reshape({-1}));
  storage.param().was_set = true;
  shard_changed(storage);
}

bool GatherPool::take_externally_written(PartitionedStorage& storage) {
  const std::lock_guard lock(mutex_);
  return std::exchange(storage.param().was_set, false);
}

void GatherPool::let_use_persistent() {
  const std::lock_guard lock(mutex_);
  lets_use_persistent_ = true;
}

void GatherPool::gather_persistent() {
  const std::lock_guard lock(mutex_);
  if (!lets_use_persistent_ || gatherer_.is_suspended()) return;
  std::vector<Gatherable*> missing = params_.missing_persistent();
  while (!missing.empty()) {
    const at::ScalarType dtype = missing.front()->dtype;
    const auto others = std::ranges::stable_partition(
        missing, [dtype](const Gatherable* param) { return param->dtype == dtype; });
    const std::vector<Gatherable*> of_dtype(missing.begin(), others.begin());
    gatherer_.start(of_dtype);
    for (Gatherable* const param : of_dtype) gatherer_.make_whole(*param);
    missing.erase(missing.begin(), others.begin());
  }
}

void GatherPool::abandon() noexcept {
  const std::lock_guard lock(mutex_);
  is_abandoned_ = true;
  on_unit_done_ = nullptr;
}

bool GatherPool::is_abandoned() const {
  const std::lock_guard lock(mutex_);
  return is_abandoned_;
}

void GatherPool::check_unused(const PartitionedStorage& storage) const {
  const std::lock_guard lock(mutex_);
  const Gatherable& param = storage.param();
  gatherer_.check_not_suspended(param);
  if (!param.is_in_use()) return;
  raise<UsageError>("parameter '", param.name, "' is in use; leave ",
                    param.num_holds > 0 ? "zero::GatheredParameters" : "forward and backward", " first");
}

void GatherPool::give_back(
    const std::vector<std::pair<at::Tensor, std::shared_ptr<PartitionedStorage>>>& params) {
  const std::lock_guard lock(mutex_);
  const c10::InferenceMode normal(false);
  const c10::NoGradGuard no_grad;
  for (const auto& [tensor, storage] : params) check_unused(*storage);
  compare_writes();
  for (size_t first = 0; first < params.size();) {
    std::vector<Gatherable*> wanted;
    size_t end = first;
    const at::ScalarType dtype = params[first].second->param().dtype;
    for (int64_t numel = 0; end < params.size(); ++end) {
      Gatherable& param = params[end].second->param();
      numel += param.numel;
      if (end > first && (numel > kGivenBackAtOnce || param.dtype != dtype)) break;
      if (param.is_rounded) live_.release(param);
      if (param.state == State::kPartitioned) wanted.push_back(&param);
    }
    if (!wanted.empty()) gatherer_.start(wanted, /*exact=*/true);
    for (; first < end; ++first) give_back_one(params[first].first, params[first].second->param());
  }
  ranks_.drop_unused_buffers();
}

void GatherPool::give_back_one(const at::Tensor& tensor, Gatherable& param) {
  gatherer_.make_whole(param);
  const at::Tensor values =
      param.whole.narrow(0, 0, param.numel).clone().as_strided(tensor.sizes(), tensor.strides());
  live_.release(param);
  param.is_given_back = true;
  tensor.set_data(values);
}

}  // namespace deepspeed::zero
