// 1. pack() asks the state for a copy. The state returns the known copy of the same storage, version and
//    place, or makes a new one within the budget. Parameters, and tensors that are too small or beyond the
//    budget, stay on the device.
// 2. A copy (OffloadedCopy) is flat, in memory order. The object for a saved tensor (Offloaded) adds sizes
//    and strides.
// 3. unpack() fetches the copy, and starts copying back the one that was packed before it.
// 4. A copy returns its bytes to the budget when the last node that saved it is done.
#include "deepspeed/activation/saved_tensor_offload.h"

#include <map>
#include <mutex>
#include <tuple>
#include <utility>
#include <vector>

#include <ATen/core/grad_mode.h>

#include "deepspeed/activation/keep/activation_meter.h"
#include "deepspeed/activation/keep/host_copy.h"
#include "deepspeed/base/error.h"

namespace deepspeed {

using activation::HostCopy;

/// Holds one copy on the host. A weak reference identifies the source, since a storage's address may be
/// reused.
class OffloadedCopy {
 public:
  OffloadedCopy(std::shared_ptr<SavedTensorOffload::State> state, const at::Tensor& flat, size_t index);
  ~OffloadedCopy();
  OffloadedCopy(const OffloadedCopy&) = delete;
  OffloadedCopy& operator=(const OffloadedCopy&) = delete;

  bool is_of(const at::Tensor& tensor) const {
    return source_.use_count() > 0 && static_cast<int64_t>(version_) == tensor._version();
  }
  at::Tensor fetch() {
    const std::lock_guard lock(mutex_);
    return copy_.fetch();
  }
  /// Starts copying back to the device. Returns false if that has already started.
  bool prefetch() {
    const std::lock_guard lock(mutex_);
    return copy_.prefetch();
  }
  size_t index() const { return index_; }

 private:
  std::shared_ptr<SavedTensorOffload::State> state_;
  c10::weak_intrusive_ptr<c10::StorageImpl> source_;
  uint32_t version_;
  size_t index_;
  std::mutex mutex_;
  HostCopy copy_;
};

class SavedTensorOffload::State : public std::enable_shared_from_this<State> {
 public:
  explicit State(const SavedTensorOffloadOptions& options) : options_(options) {}

  /// Returns a tensor's host copy, known or new; null if the tensor stays on the device.
  std::shared_ptr<OffloadedCopy> copy_of(const at::Tensor& tensor) {
    if (!may_leave(tensor)) return nullptr;
    const Key key{tensor.storage().unsafeGetStorageImpl(), tensor.storage_offset(), tensor.numel(),
                  tensor.scalar_type()};
    if (auto known = find(key, tensor)) return known;
    return reserve(static_cast<int64_t>(tensor.nbytes())) ? add(key, tensor) : nullptr;
  }
  void release(int64_t bytes) {
    const std::lock_guard lock(mutex_);
    used_ -= bytes;
  }
  /// Starts copying back the copy made last before the `index`-th, since backward asks in reverse order.
  void prefetch_before(size_t index) {
    std::shared_ptr<OffloadedCopy> next;
    {
      const std::lock_guard lock(mutex_);
      while (index > 0 && !next) next = order_[--index].lock();
    }
    if (!next || !next->prefetch()) return;
    const std::lock_guard lock(mutex_);
    ++num_prefetched_;
  }
  int64_t used() const {
    const std::lock_guard lock(mutex_);
    return used_;
  }
  int64_t num_copies() const {
    const std::lock_guard lock(mutex_);
    return num_copies_;
  }
  int64_t num_prefetched() const {
    const std::lock_guard lock(mutex_);
    return num_prefetched_;
  }

 private:
  using Key = std::tuple<const void*, int64_t, int64_t, at::ScalarType>;

  bool may_leave(const at::Tensor& tensor) const {
    return tensor.has_storage() && (options_.from_cpu || !tensor.is_cpu()) &&
           static_cast<int64_t>(tensor.nbytes()) >= options_.least_bytes && tensor.numel() > 0 &&
           tensor.is_non_overlapping_and_dense() && !activation::is_parameter(tensor);
  }
  std::shared_ptr<OffloadedCopy> find(const Key& key, const at::Tensor& tensor) {
    const std::lock_guard lock(mutex_);
    const auto found = known_.find(key);
    auto copy = found == known_.end() ? nullptr : found->second.lock();
    return copy && copy->is_of(tensor) ? copy : nullptr;
  }
  bool reserve(int64_t bytes) {
    const std::lock_guard lock(mutex_);
    if (used_ + bytes > options_.host_bytes) return false;
    if (used_ == 0) {  // a new step's forward begins
      known_.clear();
      order_.clear();
    }
    used_ += bytes;
    ++num_copies_;
    return true;
  }
  std::shared_ptr<OffloadedCopy> add(const Key& key, const at::Tensor& tensor) {
    const at::Tensor flat = tensor.detach().as_strided({tensor.numel()}, {1});
    std::shared_ptr<OffloadedCopy> copy;
    try {
      copy = std::make_shared<OffloadedCopy>(shared_from_this(), flat, order_.size());
    } catch (...) {  // without host memory the bytes are free again
      release(static_cast<int64_t>(tensor.nbytes()));
      throw;
    }
    const std::lock_guard lock(mutex_);
    known_[key] = copy;
    order_.push_back(copy);
    return copy;
  }

  const SavedTensorOffloadOptions options_;
  mutable std::mutex mutex_;
  std::map<Key, std::weak_ptr<OffloadedCopy>> known_;
  std::vector<std::weak_ptr<OffloadedCopy>> order_;
  int64_t used_ = 0;
  int64_t num_copies_ = 0;
  int64_t num_prefetched_ = 0;
};

OffloadedCopy::OffloadedCopy(std::shared_ptr<SavedTensorOffload::State> state, const at::Tensor& flat,
                             size_t index)
    : state_(std::move(state)),
      source_(flat.storage().getWeakStorageImpl()),
      version_(static_cast<uint32_t>(flat._version())),
      index_(index),
      copy_(flat) {}

OffloadedCopy::~OffloadedCopy() { state_->release(copy_.bytes()); }

namespace {

class Offloaded : public autograd::PackedTensor {
 public:
  Offloaded(std::shared_ptr<SavedTensorOffload::State> state, std::shared_ptr<OffloadedCopy> copy,
            const at::Tensor& tensor)
      : state_(std::move(state)),
        copy_(std::move(copy)),
        sizes_(tensor.sizes().vec()),
        strides_(tensor.strides().vec()) {}

  at::Tensor unpack() override {
    const at::NoGradGuard no_grad;
    const at::Tensor flat = copy_->fetch();
    state_->prefetch_before(copy_->index());
    return flat.as_strided(sizes_, strides_);
  }

 private:
  std::shared_ptr<SavedTensorOffload::State> state_;
  std::shared_ptr<OffloadedCopy> copy_;
  std::vector<int64_t> sizes_, strides_;
};

}  // namespace

SavedTensorOffload::SavedTensorOffload(const SavedTensorOffloadOptions& options)
    : state_(std::make_shared<State>(options)) {
  if (options.host_bytes < 0 || options.least_bytes < 0) {
    raise<UsageError>("SavedTensorOffloadOptions: host_bytes is ", options.host_bytes, " and least_bytes ",
                      options.least_bytes, ", expected 0 or more bytes");
  }
}
SavedTensorOffload::~SavedTensorOffload() = default;

int64_t SavedTensorOffload::bytes_on_host() const { return state_->used(); }
int64_t SavedTensorOffload::num_copies() const { return state_->num_copies(); }
int64_t SavedTensorOffload::num_prefetched() const { return state_->num_prefetched(); }

std::unique_ptr<autograd::PackedTensor> SavedTensorOffload::pack(const at::Tensor& tensor) {
  auto copy = state_->copy_of(tensor);
  if (!copy) return activation::keep_in_place(tensor);
  return std::make_unique<Offloaded>(state_, std::move(copy), tensor);
}

}  // namespace deepspeed
