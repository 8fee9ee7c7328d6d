#include "deepspeed/checkpoint/torch_archive.h"

#include <map>

#include <ATen/ops/empty.h>
#include <c10/core/CPUAllocator.h>
#include <caffe2/serialize/inline_container.h>

#include "deepspeed/base/error.h"
#include "deepspeed/checkpoint/atomic_file.h"
#include "deepspeed/checkpoint/pickler.h"
#include "deepspeed/checkpoint/storage_plan.h"
#include "deepspeed/checkpoint/unpickler.h"
#include "deepspeed/checkpoint/zip_reader.h"

namespace deepspeed::checkpoint {
namespace {

constexpr const char* kTorchArchiveWhere = "checkpoint.torch_archive";

/// An address for records without bytes: the zip writer refuses a null pointer.
const void* address_of(const at::Tensor& tensor) {
  return tensor.numel() == 0 ? "" : tensor.const_data_ptr();
}

void write_records(AtomicFile& file, const std::string& pickled, const std::vector<at::Tensor>& records) {
  std::exception_ptr failure;  // the zip writer must not be left by an exception in the middle of a record
  const auto sink = [&](const void* data, size_t size) -> size_t {
    if (failure) return size;
    try {
      file.write(data, size);
    } catch (...) {
      failure = std::current_exception();
    }
    return size;
  };
  const auto write = [&](caffe2::serialize::PyTorchStreamWriter& writer, const std::string& name,
                         const void* data, size_t size) {
    writer.writeRecord(name, data, size);
    if (failure) std::rethrow_exception(failure);
  };
  caffe2::serialize::PyTorchStreamWriter writer(sink);
  write(writer, "data.pkl", pickled.data(), pickled.size());
  write(writer, "byteorder", "little", 6);
  for (size_t index = 0; index < records.size(); ++index) {
    const at::Tensor record = records[index].cpu();
    write(writer, "data/" + std::to_string(index), address_of(record), record.nbytes());
  }
  writer.writeEndOfFile();
  if (failure) std::rethrow_exception(failure);
}

/// Storages of a file by their key; each is read once, however many tensors lie in it.
class StorageCache {
 public:
  StorageCache(const ZipReader& zip, bool tensor_data) : zip_(zip), tensor_data_(tensor_data) {}

  at::Storage load(const std::string& key, int64_t num_bytes) {
    const std::string name = "data/" + key;
    if (zip_.size(name) != uint64_t(num_bytes)) {
      raise<CheckpointError>(kTorchArchiveWhere, "the storage ", key, " has ", zip_.size(name),
                             " bytes, expected ", num_bytes);
    }
    const auto [found, is_new] = storages_.try_emplace(key);
    if (is_new) found->second = read(name, num_bytes);
    return found->second;
  }

 private:
  at::Storage read(const std::string& name, int64_t num_bytes) const {
    const auto device = tensor_data_ ? at::kCPU : at::kMeta;
    at::Tensor bytes = at::empty({num_bytes}, at::TensorOptions().dtype(at::kByte).device(device));
    if (tensor_data_) zip_.read(name, bytes.mutable_data_ptr());
    return bytes.storage();
  }

  const ZipReader& zip_;
  bool tensor_data_;
  std::map<std::string, at::Storage> storages_;
};

void check_byte_order(const ZipReader& zip) {
  if (!zip.has("byteorder")) return;  // files of torch < 2.1, little-endian in practice
  const std::string order = zip.read_text("byteorder");
  if (order != "little")
    raise<CheckpointError>(kTorchArchiveWhere, "the byte order is '", order, "', expected 'little'");
}

}  // namespace

void write_torch_archive(const std::filesystem::path& path, const Value& value) {
  const StoragePlan plan(value);
  const std::string pickled = pickle(value, plan);
  AtomicFile file(path);
  try {
    write_records(file, pickled, plan.records());
  } catch (const c10::Error& error) {
    raise<IoError>(kTorchArchiveWhere, "cannot write ", path, ": ", error.what_without_backtrace());
  }
  file.commit();
}

Value read_torch_archive(const std::filesystem::path& path, const ReadOptions& options) {
  const ZipReader zip(path);
  try {
    check_byte_order(zip);
    StorageCache storages(zip, options.tensor_data);
    const std::string pickled = zip.read_text("data.pkl");
    return unpickle(pickled, [&](const std::string& key, int64_t size) { return storages.load(key, size); });
  } catch (const CheckpointError& error) {
    raise<CheckpointError>(kTorchArchiveWhere, "cannot read ", path, ": ", error.what());
  } catch (const c10::Error& error) {  // torch's own refusal, of memory for instance
    raise<CheckpointError>(kTorchArchiveWhere, "cannot read ", path, ": ", error.what_without_backtrace());
  }
}

}  // namespace deepspeed::checkpoint
