// The part of GatherPool that makes parameters ordinary tensors again.
#include <utility>

#include <c10/core/GradMode.h>
#include <c10/core/InferenceMode.h>

#include "deepspeed/base/error.h"
#include "deepspeed/zero/access/gather_pool.h"

namespace deepspeed::zero {
namespace {

// Elements that are gathered at one time, beside what is whole already.
constexpr int64_t kGivenBackAtOnce = 16 << 20;

}  // namespace

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
  check_not_suspended(storage);
  if (storage.num_uses_ == 0 && storage.num_holds_ == 0) return;
  raise<UsageError>("parameter '", storage.name_, "' is in use; leave ",
                    storage.num_holds_ > 0 ? "zero::GatheredParameters" : "forward and backward", " first");
}

void GatherPool::give_back(
    const std::vector<std::pair<at::Tensor, std::shared_ptr<PartitionedStorage>>>& params) {
  const std::lock_guard lock(mutex_);
  const c10::InferenceMode normal(false);
  const c10::NoGradGuard no_grad;
  for (const auto& [param, storage] : params) check_unused(*storage);
  for (size_t first = 0; first < params.size();) {
    std::vector<PartitionedStorage*> wanted;
    size_t end = first;
    for (int64_t numel = 0; end < params.size(); ++end) {
      PartitionedStorage& storage = *params[end].second;
      numel += storage.numel_;
      if (end > first && (numel > kGivenBackAtOnce || storage.dtype_ != params[first].second->dtype_)) break;
      if (storage.is_rounded_) release(storage);
      if (storage.state_ == State::kPartitioned) wanted.push_back(&storage);
    }
    if (!wanted.empty()) start_gathers(wanted, /*exact=*/true);
    for (; first < end; ++first) give_back_one(params[first].first, *params[first].second);
  }
  buffers_.drop_unused();
}

void GatherPool::give_back_one(const at::Tensor& param, PartitionedStorage& storage) {
  make_whole(storage);
  const at::Tensor values =
      storage.whole_.narrow(0, 0, storage.numel_).clone().as_strided(param.sizes(), param.strides());
  release(storage);
  storage.is_given_back_ = true;
  param.set_data(values);
}

}  // namespace deepspeed::zero
