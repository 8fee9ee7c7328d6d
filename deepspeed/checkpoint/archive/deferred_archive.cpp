#include "deepspeed/checkpoint/archive/deferred_archive.h"

#include <algorithm>
#include <map>
#include <utility>

#include <ATen/ops/empty.h>

#include "deepspeed/base/error.h"
#include "deepspeed/checkpoint/archive/torch_archive.h"
#include "deepspeed/checkpoint/archive/zip_reader.h"
#include "deepspeed/checkpoint/pickle/unpickler.h"
#include "deepspeed/checkpoint/pickle/value_children.h"

namespace deepspeed::checkpoint {
namespace {

constexpr int64_t kConvertedBytes = 4 * 1024 * 1024;  // read at once when converting to another dtype
constexpr uint64_t kVerifiedBytes = 4 * 1024 * 1024;  // read at once when only verifying

}  // namespace

DeferredArchive::DeferredArchive(std::filesystem::path path, std::optional<FileSums> sums)
    : zip_(std::move(path), std::move(sums)) {
  std::map<std::string, at::Storage> storages;
  const auto load = [&](const std::string& key, int64_t num_bytes) {
    const std::string name = "data/" + key;
    if (zip_.size(name) != uint64_t(num_bytes)) {
      raise<CheckpointError>("the storage ", key, " has ", zip_.size(name), " bytes, expected ", num_bytes);
    }
    const auto [found, is_new] = storages.try_emplace(key);
    if (!is_new) return found->second;
    const bool deferred = num_bytes > kDeferredBytes;
    at::Tensor bytes =
        at::empty({num_bytes}, at::TensorOptions().dtype(at::kByte).device(deferred ? at::kMeta : at::kCPU));
    found->second = bytes.storage();
    if (deferred) {
      records_.emplace(found->second.unsafeGetStorageImpl(), name);
    } else {
      zip_.read(name, bytes.mutable_data_ptr());
    }
    return found->second;
  };
  try {
    check_byte_order(zip_);
    value_ = unpickle(zip_.read_text("data.pkl"), load);
    if (zip_.has(kMarkRecord)) mark_ = zip_.read_text(kMarkRecord);
  } catch (const CheckpointError& error) {
    raise<CheckpointError>("cannot read ", zip_.path(), ": ", error.what());
  } catch (const c10::Error& error) {  // torch's own error, for example out of memory
    raise<CheckpointError>("cannot read ", zip_.path(), ": ", error.what_without_backtrace());
  }
}

const std::string& DeferredArchive::record_of(const at::Tensor& tensor) const {
  const auto record = records_.find(tensor.storage().unsafeGetStorageImpl());
  if (record == records_.end())
    raise<UsageError>("a tensor that is not of ", zip_.path(), " cannot be read from it");
  return record->second;
}

void DeferredArchive::read_bytes(const at::Tensor& tensor, int64_t first, void* destination,
                                 int64_t numel) const {
  const auto item = static_cast<uint64_t>(tensor.element_size());
  zip_.read_part(record_of(tensor), uint64_t(tensor.storage_offset() + first) * item, destination,
                 uint64_t(numel) * item);
}

void DeferredArchive::read(const at::Tensor& tensor, const Interval& elements,
                           const at::Tensor& destination) const {
  if (!tensor.is_contiguous() || elements.begin < 0 || elements.end > tensor.numel() ||
      destination.numel() != elements.numel()) {
    raise<CheckpointError>(zip_.path(), ": the elements ", elements.begin, " to ", elements.end,
                           " of a tensor of ", tensor.numel(), " cannot be read into ", destination.numel());
  }
  if (!tensor.is_meta()) {
    destination.copy_(tensor.view({-1}).narrow(0, elements.begin, elements.numel()));
    return;
  }
  if (destination.is_cpu() && destination.scalar_type() == tensor.scalar_type() &&
      destination.is_contiguous()) {
    return read_bytes(tensor, elements.begin, destination.mutable_data_ptr(), elements.numel());
  }
  const int64_t step = kConvertedBytes / int64_t(tensor.element_size());
  const at::Tensor piece = at::empty({std::min(step, elements.numel())}, tensor.options().device(at::kCPU));
  for (int64_t done = 0; done < elements.numel(); done += step) {
    const at::Tensor part = piece.narrow(0, 0, std::min(step, elements.numel() - done));
    read_bytes(tensor, elements.begin + done, part.mutable_data_ptr(), part.numel());
    destination.narrow(0, done, part.numel()).copy_(part);
  }
}

at::Tensor DeferredArchive::load(const at::Tensor& tensor) const {
  if (!tensor.is_meta()) return tensor;
  const std::string& record = record_of(tensor);
  const at::Tensor loaded = at::empty(tensor.sizes(), tensor.options().device(at::kCPU));
  // Only a read of the whole record can check the record's own checksum.
  if (tensor.is_contiguous() && tensor.storage_offset() == 0 && zip_.size(record) == tensor.nbytes()) {
    zip_.read(record, loaded.mutable_data_ptr());
  } else if (tensor.is_contiguous()) {
    read(tensor, {0, tensor.numel()}, loaded.view({-1}));
  } else {
    const auto numel = static_cast<int64_t>(zip_.size(record) / tensor.element_size());
    const at::Tensor whole = at::empty({numel}, loaded.options());
    zip_.read(record, whole.mutable_data_ptr());
    loaded.copy_(whole.as_strided(tensor.sizes(), tensor.strides(), tensor.storage_offset()));
  }
  return loaded;
}

at::Storage DeferredArchive::load_storage(const at::Tensor& tensor) const {
  const std::string& record = record_of(tensor);
  const at::Tensor bytes = at::empty({int64_t(zip_.size(record))}, at::kByte);
  zip_.read(record, bytes.mutable_data_ptr());
  return bytes.storage();
}

Value DeferredArchive::load(Value value) const {
  Storages loaded;
  return load(std::move(value), loaded);
}

Value DeferredArchive::load(Value value, Storages& loaded) const {
  if (auto* tensor = std::get_if<at::Tensor>(&value.data()); tensor != nullptr && tensor->is_meta()) {
    const auto [found, is_new] = loaded.try_emplace(tensor->storage().unsafeGetStorageImpl());
    if (is_new) found->second = load_storage(*tensor);
    *tensor = at::empty({0}, tensor->options().device(at::kCPU))
                  .set_(found->second, tensor->storage_offset(), tensor->sizes(), tensor->strides());
  }
  change_children(value, [&](Value& child) { child = load(std::move(child), loaded); });
  return value;
}

void DeferredArchive::verify() const {
  const at::Tensor piece = at::empty({int64_t(kVerifiedBytes)}, at::kByte);
  for (const auto& [storage, record] : records_) {
    const uint64_t size = zip_.size(record);
    for (uint64_t done = 0; done < size; done += kVerifiedBytes)
      zip_.read_part(record, done, piece.mutable_data_ptr(), std::min(kVerifiedBytes, size - done));
  }
}

}  // namespace deepspeed::checkpoint
