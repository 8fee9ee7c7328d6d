#include "deepspeed/activation/keep/activation_meter.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "deepspeed/zero/storage/storage_record.h"

namespace deepspeed::activation {
namespace {

Meters& meters_of_thread() {
  thread_local Meters meters;
  return meters;
}

class CountedInPlace : public autograd::KeptTensor {
 public:
  explicit CountedInPlace(const at::Tensor& tensor) : KeptTensor(tensor), counted_(tensor) {}

 private:
  CountedTensor counted_;
};

class CountingHooks : public autograd::SavedTensorHooks {
 public:
  std::unique_ptr<autograd::PackedTensor> pack(const at::Tensor& tensor) override {
    return keep_in_place(tensor);
  }
  bool takes_leaf(const at::TensorImpl*) override { return false; }
};

}  // namespace

int64_t ActivationMeter::kept_bytes() const {
  const std::lock_guard lock(mutex_);
  return kept_;
}
int64_t ActivationMeter::host_bytes() const {
  const std::lock_guard lock(mutex_);
  return on_host_;
}
int64_t ActivationMeter::peak_bytes() const {
  const std::lock_guard lock(mutex_);
  return peak_;
}
int64_t ActivationMeter::peak_host_bytes() const {
  const std::lock_guard lock(mutex_);
  return peak_on_host_;
}
void ActivationMeter::reset_peak() {
  const std::lock_guard lock(mutex_);
  peak_ = kept_;
  peak_on_host_ = on_host_;
}

const void* ActivationMeter::add(const at::Tensor& tensor, bool on_host) {
  const c10::StorageImpl* storage = tensor.storage().unsafeGetStorageImpl();
  const std::lock_guard lock(mutex_);
  Entry& entry = storages_[storage];
  if (entry.uses++ > 0) return storage;
  entry.bytes = static_cast<int64_t>(storage->nbytes());
  entry.on_host = on_host;
  (on_host ? on_host_ : kept_) += entry.bytes;
  peak_ = std::max(peak_, kept_);
  peak_on_host_ = std::max(peak_on_host_, on_host_);
  return storage;
}

void ActivationMeter::remove(const void* storage) {
  const std::lock_guard lock(mutex_);
  const auto found = storages_.find(storage);
  Entry& entry = found->second;
  if (--entry.uses > 0) return;
  (entry.on_host ? on_host_ : kept_) -= entry.bytes;
  storages_.erase(found);
}

CountedTensor::CountedTensor(const at::Tensor& tensor, Place place) : meters_(current_meters()) {
  if (!tensor.defined() || !tensor.has_storage()) meters_.reset();
  for (auto* list = meters_.get(); list != nullptr; list = list->outer.get())
    storage_ = list->meter->add(tensor, place == Place::kHost);
}
CountedTensor::~CountedTensor() {
  for (auto* list = meters_.get(); list != nullptr; list = list->outer.get()) list->meter->remove(storage_);
}

MeterScope::MeterScope(Meters meters) : former_(std::exchange(meters_of_thread(), std::move(meters))) {}
MeterScope::MeterScope(std::shared_ptr<ActivationMeter> meter)
    : MeterScope(std::make_shared<const MeterList>(MeterList{std::move(meter), current_meters()})) {}
MeterScope::~MeterScope() { meters_of_thread() = std::move(former_); }

Meters current_meters() { return meters_of_thread(); }

struct CountActivations::Scopes {
  explicit Scopes(std::shared_ptr<ActivationMeter> meter) : meter_scope(std::move(meter)) {
    // Existing hooks already count what they keep.
    if (autograd::current_saved_tensor_hooks() == nullptr) hooks_scope.emplace(hooks);
  }
  CountingHooks hooks;
  MeterScope meter_scope;
  std::optional<autograd::SavedTensorScope> hooks_scope;
};

CountActivations::CountActivations(std::shared_ptr<ActivationMeter> meter)
    : scopes_(std::make_unique<Scopes>(std::move(meter))) {}
CountActivations::~CountActivations() = default;

bool is_parameter(const at::Tensor& tensor) {
  if (zero::record_of(tensor)) return true;
  const at::TensorBase& base = tensor.is_view() ? tensor._base() : tensor;
  return base.is_leaf() && base.requires_grad();
}

std::unique_ptr<autograd::PackedTensor> keep_in_place(const at::Tensor& tensor) {
  if (is_parameter(tensor)) return std::make_unique<autograd::KeptTensor>(tensor);
  return std::make_unique<CountedInPlace>(tensor);
}

}  // namespace deepspeed::activation
