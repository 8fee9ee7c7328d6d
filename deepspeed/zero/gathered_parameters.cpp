#include "deepspeed/zero/gathered_parameters.h"

#include <algorithm>
#include <exception>
#include <utility>

#include "deepspeed/base/error.h"
#include "deepspeed/zero/construction.h"
#include "deepspeed/zero/construction_mode.h"
#include "deepspeed/zero/holdable_storage.h"

namespace deepspeed::zero {

GatheredParameters::GatheredParameters(const std::vector<at::Tensor>& params,
                                       std::optional<int> modifier_rank)
    : modifier_rank_(modifier_rank), exceptions_(std::uncaught_exceptions()) {
  std::vector<std::shared_ptr<HoldableStorage>> wanted;
  Construction* const construction = current_construction();
  for (const at::Tensor& param : params) {
    if (construction != nullptr) construction->partition_if_born_here(param);
    auto storage = std::dynamic_pointer_cast<HoldableStorage>(record_of(param));
    if (!storage || std::find(wanted.begin(), wanted.end(), storage) != wanted.end()) continue;
    const int ranks = storage->num_ranks();
    if (modifier_rank && (*modifier_rank < 0 || *modifier_rank >= ranks)) {
      raise<UsageError>("zero.GatheredParameters", "modifier_rank ", *modifier_rank, ", expected 0 to ",
                        ranks - 1);
    }
    wanted.push_back(std::move(storage));
  }
  try {
    for (const auto& storage : wanted) {
      storage->hold(modifier_rank.has_value());
      held_.push_back(storage);
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
  if (modifier_rank_) {
    try {
      for (const auto& storage : held_) storage->write_back(*modifier_rank_);
    } catch (...) {
      drop(/*forget_writes=*/true);
      throw;
    }
  }
  drop(/*forget_writes=*/false);
}

void GatheredParameters::drop(bool forget_writes) noexcept {
  for (const auto& storage : std::exchange(held_, {})) storage->drop_hold(forget_writes);
}

}  // namespace deepspeed::zero
