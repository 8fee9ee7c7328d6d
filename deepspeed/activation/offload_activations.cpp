#include "deepspeed/activation/offload_activations.h"

#include <atomic>
#include <deque>
#include <map>
#include <optional>
#include <unordered_set>
#include <utility>

#include <ATen/ops/empty_like.h>
#include <c10/core/GradMode.h>

#include "deepspeed/autograd/saved_tensors.h"
#include "deepspeed/base/error.h"
#include "deepspeed/device/streams/side_stream.h"

namespace deepspeed::checkpointing {
namespace {

constexpr size_t kCopiesUnderWay = 4;  // whose sources are held

/// Bytes in the host's memory, which may outlive the scope.
using Used = std::shared_ptr<std::atomic<int64_t>>;

/// A tensor in the host's memory.
struct OnHost {
  OnHost(at::Tensor copy, at::Device device, Used used)
      : copy(std::move(copy)), device(device), used(std::move(used)) {}
  ~OnHost() { *used -= int64_t(copy.nbytes()); }

  at::Tensor copy;
  at::Device device;
  device::StreamEvent done;
  Used used;
};

class FromHost : public autograd::SavedTensor {
 public:
  explicit FromHost(std::shared_ptr<OnHost> held) : held_(std::move(held)) {}
  at::Tensor unpack() override {
    if (held_->device.is_cpu()) return held_->copy;
    held_->done.wait();
    return held_->copy.to(held_->device, /*non_blocking=*/true);
  }

 private:
  std::shared_ptr<OnHost> held_;
};

}  // namespace

class OffloadActivations::Mover : public autograd::SavedTensorProvider {
 public:
  explicit Mover(OffloadOptions options) : options_(std::move(options)) {
    if (options_.budget_bytes < 0)
      raise<UsageError>("budget_bytes is ", options_.budget_bytes, ", expected 0 or more");
    for (const at::Tensor& tensor : options_.excluded) {
      if (tensor.defined() && tensor.has_storage()) excluded_.insert(tensor.storage().unsafeGetStorageImpl());
    }
    scope_.emplace(this);
  }

  std::unique_ptr<autograd::SavedTensor> pack(const at::Tensor& tensor) override {
    const auto bytes = int64_t(tensor.nbytes());
    if (!tensor.has_storage() || bytes < options_.min_offload_bytes ||
        !tensor.is_non_overlapping_and_dense() || excluded_.contains(tensor.storage().unsafeGetStorageImpl()))
      return autograd::keep_as_it_is(tensor);
    const Key key{tensor.storage().unsafeGetStorageImpl(), tensor._version(), tensor.storage_offset(),
                  tensor.sizes().vec(), tensor.strides().vec()};
    if (const auto known = known_.find(key); known != known_.end()) {
      // The storage's address may be another tensor's now: it is the same one only while it lives.
      const bool is_alive = known->second.storage.lock() != nullptr;
      const auto held = known->second.held.lock();
      if (is_alive && held) return std::make_unique<FromHost>(held);
      known_.erase(known);
    }
    if (*used_ + bytes > options_.budget_bytes) return autograd::keep_as_it_is(tensor);
    auto held = move(tensor, bytes);
    known_.emplace(key, Known{tensor.storage().getWeakStorageImpl(), held});
    return std::make_unique<FromHost>(std::move(held));
  }

  int64_t used() const { return *used_; }
  int64_t num_copies() const { return num_copies_; }

 private:
  struct Key {
    const void* storage;
    int64_t version;
    int64_t offset;
    std::vector<int64_t> sizes, strides;
    auto operator<=>(const Key&) const = default;
  };
  struct Known {
    c10::weak_intrusive_ptr<c10::StorageImpl> storage;
    std::weak_ptr<OnHost> held;
  };
  struct UnderWay {
    at::Tensor source;
    std::shared_ptr<OnHost> held;
  };

  std::shared_ptr<OnHost> move(const at::Tensor& tensor, int64_t bytes) {
    const c10::NoGradGuard no_grad;
    const at::Tensor source = tensor.detach();
    const bool is_on_host = source.is_cpu();
    at::Tensor copy = at::empty_like(source, source.options().device(at::kCPU).pinned_memory(!is_on_host));
    auto held = std::make_shared<OnHost>(std::move(copy), source.device(), used_);
    *used_ += bytes;
    ++num_copies_;
    if (!side_) side_.emplace(source.device());
    held->done = side_->copy(held->copy, source);
    if (is_on_host) return held;
    under_way_.push_back({source, held});
    while (under_way_.size() > kCopiesUnderWay) {
      under_way_.front().held->done.wait();
      under_way_.pop_front();
    }
    return held;
  }

  OffloadOptions options_;
  std::unordered_set<const void*> excluded_;
  std::map<Key, Known> known_;
  Used used_ = std::make_shared<std::atomic<int64_t>>(0);
  int64_t num_copies_ = 0;
  std::optional<device::SideStream> side_;
  std::deque<UnderWay> under_way_;
  std::optional<autograd::SavedTensorScope> scope_;
};

OffloadActivations::OffloadActivations(OffloadOptions options)
    : mover_(std::make_unique<Mover>(std::move(options))) {}
OffloadActivations::~OffloadActivations() = default;

int64_t OffloadActivations::offloaded_bytes() const { return mover_->used(); }
int64_t OffloadActivations::num_copies() const { return mover_->num_copies(); }

}  // namespace deepspeed::checkpointing
