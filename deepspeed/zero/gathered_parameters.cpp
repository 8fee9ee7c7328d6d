#include "deepspeed/zero/gathered_parameters.h"

#include <algorithm>
#include <cstddef>
#include <exception>
#include <string>
#include <unordered_set>
#include <utility>

#include <c10/core/GradMode.h>

#include "deepspeed/base/error.h"
#include "deepspeed/base/message.h"
#include "deepspeed/zero/construction/construction.h"
#include "deepspeed/zero/construction/construction_mode.h"
#include "deepspeed/zero/storage/fingerprint.h"
#include "deepspeed/zero/storage/holdable_storage.h"

namespace deepspeed::zero {

GatheredParameters::GatheredParameters(const std::vector<at::Tensor>& params,
                                       std::optional<int> modifier_rank)
    : modifier_rank_(modifier_rank), exceptions_(std::uncaught_exceptions()) {
  std::vector<std::shared_ptr<HoldableStorage>> wanted;
  std::unordered_set<const HoldableStorage*> seen;
  Construction* const construction = current_construction();
  for (const at::Tensor& param : params) {
    if (construction != nullptr) construction->partition_if_born_here(param);
    auto storage = std::dynamic_pointer_cast<HoldableStorage>(record_of(param));
    if (!storage || !seen.insert(storage.get()).second) continue;
    const int ranks = storage->group().size();
    if (modifier_rank && (*modifier_rank < 0 || *modifier_rank >= ranks)) {
      raise<UsageError>("modifier_rank ", *modifier_rank, ", expected 0 to ", ranks - 1);
    }
    wanted.push_back(std::move(storage));
    gathered_.push_back({param, at::Tensor()});
  }
  try {
    for (const auto& storage : wanted) {
      storage->hold(modifier_rank.has_value());
      held_.push_back(storage);
    }
    for (Gathered& gathered : gathered_) {
      gathered.has_aliases = gathered.param.storage().use_count() > 1;
      gathered.memory = gathered.param.detach();
      if (is_shared_write()) gathered.before = fingerprint(gathered.memory);
    }
  } catch (...) {
    drop(/*forget_writes=*/modifier_rank_.has_value());
    throw;
  }
}

GatheredParameters::~GatheredParameters() noexcept(false) {
  if (std::uncaught_exceptions() > exceptions_) {
    drop(/*forget_writes=*/modifier_rank_.has_value());
  } else {
    close();
  }
}

void GatheredParameters::close() {
  std::string lost;
  try {
    take_replaced();
    if (is_shared_write()) lost = text_of_lost_writes();
    if (modifier_rank_) {
      for (const auto& storage : held_) storage->write_back(*modifier_rank_);
    }
  } catch (...) {
    drop(/*forget_writes=*/modifier_rank_.has_value());
    throw;
  }
  drop(/*forget_writes=*/false);
  if (!lost.empty()) raise<UsageError>(lost);
}

bool GatheredParameters::is_shared_write() const {
  return modifier_rank_ && !held_.empty() && held_.front()->group().size() > 1;
}

std::string GatheredParameters::written_here() const {
  std::string written;
  for (size_t index = 0; index < held_.size(); ++index) {
    const Gathered& gathered = gathered_[index];
    const bool is_written = gathered.is_replaced || held_[index]->was_written() ||
                            fingerprint(gathered.memory) != gathered.before;
    written.push_back(is_written ? '1' : '0');
  }
  return written;
}

std::string GatheredParameters::text_of_lost_writes() const {
  const std::vector<std::string> written = held_.front()->group().all_gather_text(written_here());
  for (size_t index = 0; index < held_.size(); ++index) {
    if (written[static_cast<size_t>(*modifier_rank_)][index] == '1') continue;
    for (size_t rank = 0; rank < written.size(); ++rank) {
      if (written[rank][index] == '0') continue;
      return message("parameter '", held_[index]->name(), "' was written on rank ", rank,
                     " and not on the modifier_rank, ", *modifier_rank_,
                     ", whose values become those of all ranks: what rank ", rank,
                     " wrote is lost; write it on rank ", *modifier_rank_,
                     ", or on all, or pass modifier_rank = ", rank);
    }
  }
  return {};
}

void GatheredParameters::forget_replaced() noexcept {
  const c10::NoGradGuard no_grad;
  for (size_t index = 0; index < held_.size(); ++index) {
    const Gathered& gathered = gathered_[index];
    if (!gathered.memory.defined() || record_of(gathered.param) == held_[index]) continue;
    try {
      gathered.param.set_data(gathered.memory);
    } catch (const std::exception&) {
      // A parameter of another type stays an ordinary tensor, which the next gather refuses.
    }
  }
}

void GatheredParameters::take_replaced() {
  const c10::NoGradGuard no_grad;
  std::string problem;
  for (size_t index = 0; index < held_.size(); ++index) {
    const auto& [param, memory, before, is_replaced, has_aliases] = gathered_[index];
    if (record_of(param) == held_[index]) continue;
    gathered_[index].is_replaced = true;
    const at::Tensor other = param.detach();
    // If the type changed, autograd has dropped the parameter's node, and the engine's hooks with it.
    const bool fits = other.sizes() == memory.sizes() && other.options().type_equal(memory.options());
    if (fits) param.set_data(memory);
    if (fits && modifier_rank_) {
      memory.copy_(other);
    } else if (fits) {
      held_[index]->warn_of_lost_write();
    } else if (problem.empty()) {
      problem = message("parameter '", held_[index]->name(), "', ", memory.toString(), " of ", memory.sizes(),
                        ", got other memory, ", other.toString(), " of ", other.sizes(),
                        ", by set_data(), torch::load() or Module::to(): expected the same type and sizes");
    }
  }
  if (!problem.empty()) raise<UsageError>(problem);
}

void GatheredParameters::leave_to_aliases() noexcept {
  for (size_t index = 0; index < held_.size(); ++index) {
    Gathered& gathered = gathered_[index];
    gathered.memory.reset();
    if (gathered.has_aliases || record_of(gathered.param) != held_[index]) continue;
    if (gathered.param.storage().use_count() == 1) continue;
    try {
      held_[index]->leave_to_aliases(gathered.param);
    } catch (const std::exception&) {
      // Without memory for a copy they stay as they are. Reading them then throws a clear error.
    }
  }
}

void GatheredParameters::drop(bool forget_writes) noexcept {
  forget_replaced();
  leave_to_aliases();
  gathered_.clear();
  for (const auto& storage : std::exchange(held_, {}))
    storage->drop_hold(modifier_rank_.has_value(), forget_writes);
}

}  // namespace deepspeed::zero
