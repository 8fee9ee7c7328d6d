#include "deepspeed/zero/storage/storage_record.h"

#include <array>
#include <functional>
#include <mutex>
#include <utility>

#include <ATen/ops/empty.h>
#include <c10/core/InferenceMode.h>
#include <c10/core/Storage.h>
#include <c10/core/TensorImpl.h>

namespace deepspeed::zero {
namespace {

// Torch has a public call to set this flag, but none to clear it. An explicit instantiation may name a
// private member, which makes clearing possible.
bool& throws_on_access(c10::StorageImpl& storage);

template <bool c10::StorageImpl::*kFlag>
struct FlagAccess {
  friend bool& throws_on_access(c10::StorageImpl& storage) { return storage.*kFlag; }
};
template struct FlagAccess<&c10::StorageImpl::throw_on_immutable_data_ptr_>;

struct RecordContext {
  std::shared_ptr<StorageRecord> record;
};

void delete_record_context(void* context) {
  auto* const own = static_cast<RecordContext*>(context);
  own->record->on_storage_lost();
  delete own;
}

struct LeftContext {
  at::Tensor values, seen;
};

void delete_left_context(void* context) { delete static_cast<LeftContext*>(context); }

// A DataPtr cannot change only its pointer. While it is replaced, the storage briefly has no context, and
// another thread may look at that moment.
std::mutex& swap_mutex(const c10::StorageImpl* storage) {
  static std::array<std::mutex, 16> mutexes;
  return mutexes[(std::hash<const void*>()(storage) >> 6) % mutexes.size()];
}

}  // namespace

void StorageRecord::set_data(c10::StorageImpl& storage, void* data) const {
  const std::lock_guard lock(swap_mutex(&storage));
  at::DataPtr& present = storage._mutable_data_ptr_no_checks();
  const at::Device device = present.device();
  throws_on_access(storage) = false;
  void* const context = present.release_context();
  storage.set_data_ptr_noswap(at::DataPtr(data, context, &delete_record_context, device));
  if (data == nullptr) storage.release_data_and_set_meta_custom_data_ptr_error_msg_(text_where_empty());
}

void StorageRecord::fill(void* data) const {
  if (const auto storage = storage_.lock()) set_data(*storage, data);
}

void StorageRecord::empty() const {
  if (const auto storage = storage_.lock()) set_data(*storage, nullptr);
}

void arm(const at::Tensor& tensor, std::shared_ptr<StorageRecord> record, const at::TensorOptions& options) {
  const c10::InferenceMode normal(false);
  const at::Device device = options.has_device() ? options.device() : tensor.device();
  const caffe2::TypeMeta dtype = options.has_dtype() ? options.dtype() : tensor.dtype();
  const c10::DispatchKeySet keys =
      device == tensor.device() ? tensor.key_set() : at::empty({0}, options.device(device)).key_set();
  StorageRecord& armed = *record;
  auto* const context = new RecordContext{std::move(record)};
  const size_t bytes = static_cast<size_t>(tensor.numel()) * dtype.itemsize();
  auto storage = c10::make_intrusive<c10::StorageImpl>(
      c10::StorageImpl::use_byte_size_t(), c10::SymInt(static_cast<int64_t>(bytes)),
      at::DataPtr(nullptr, context, &delete_record_context, device), nullptr, /*resizable=*/false);
  armed.storage_ = c10::weak_intrusive_ptr<c10::StorageImpl>(storage);
  armed.empty();
  auto impl = c10::make_intrusive<at::TensorImpl>(c10::Storage(std::move(storage)),
                                                  keys.add(kInterceptionKey), dtype);
  if (tensor.is_non_overlapping_and_dense()) {
    impl->set_sizes_and_strides(tensor.sizes(), tensor.strides());
  } else {
    impl->set_sizes_contiguous(tensor.sizes());
  }
  // set_data() refuses to move a tensor from the meta device to another one.
  if (tensor.is_meta()) return tensor.unsafeGetTensorImpl()->shallow_copy_from(impl);
  tensor.set_data(at::Tensor(std::move(impl)));
}

void rearm_apart(const at::Tensor& tensor, const at::Tensor& values, const at::Tensor& seen) {
  const c10::InferenceMode normal(false);
  const c10::Storage old = tensor.storage();
  c10::StorageImpl& left = *old.unsafeGetStorageImpl();
  std::shared_ptr<StorageRecord> record = record_of(tensor);
  auto* const context = new LeftContext{values, seen};
  {
    const std::lock_guard lock(swap_mutex(&left));
    throws_on_access(left) = false;
    // The record lives on, so it is not told that its storage is lost.
    delete static_cast<RecordContext*>(left._mutable_data_ptr_no_checks().release_context());
    left.set_data_ptr_noswap(
        at::DataPtr(values.mutable_data_ptr(), context, &delete_left_context, values.device()));
  }
  arm(tensor, std::move(record));
}

std::shared_ptr<StorageRecord> record_of(const at::Tensor& tensor) {
  if (!tensor.defined() || !tensor.key_set().has(kInterceptionKey) || !tensor.has_storage()) return nullptr;
  auto* const storage = tensor.storage().unsafeGetStorageImpl();
  const std::lock_guard lock(swap_mutex(storage));
  const auto* const context =
      storage->_mutable_data_ptr_no_checks().cast_context<RecordContext>(&delete_record_context);
  return context == nullptr ? nullptr : context->record;
}

}  // namespace deepspeed::zero
