#include "deepspeed/checkpoint/archive/torch_archive.h"

#include <map>
#include <utility>

#include <ATen/ops/empty.h>
#include <c10/core/CPUAllocator.h>

#include "deepspeed/base/error.h"
#include "deepspeed/checkpoint/archive/zip_reader.h"
#include "deepspeed/checkpoint/archive/zip_writer.h"
#include "deepspeed/checkpoint/file/atomic_file.h"
#include "deepspeed/checkpoint/pickle/pickler.h"
#include "deepspeed/checkpoint/pickle/storage_plan.h"
#include "deepspeed/checkpoint/pickle/unpickler.h"

namespace deepspeed::checkpoint {
namespace {

void write_records(AtomicFile& file, const ArchiveContent& content) {
  ZipWriter zip("archive", [&](const void* data, size_t size) { return file.write(data, size); });
  zip.add("data.pkl", content.pickled.data(), content.pickled.size());
  zip.add("byteorder", "little", 6);
  if (!content.mark.empty()) zip.add(kMarkRecord, content.mark.data(), content.mark.size());
  for (size_t index = 0; index < content.records.size(); ++index) {
    const at::Tensor& record = content.records[index];
    const std::string name = "data/" + std::to_string(index);
    if (record.is_meta()) {
      zip.add(name, record.nbytes(), [&](const PieceSink& sink) { content.stream(record, sink); });
    } else {
      const at::Tensor data = record.cpu();
      zip.add(name, data.const_data_ptr(), data.nbytes());
    }
  }
  zip.add("version", "3\n", 2);
  zip.finish();
}

/// Reads the storages of a file by key, each only once.
class StorageCache {
 public:
  StorageCache(const ZipReader& zip, bool tensor_data) : zip_(zip), tensor_data_(tensor_data) {}

  at::Storage load(const std::string& key, int64_t num_bytes) {
    const std::string name = "data/" + key;
    if (zip_.size(name) != uint64_t(num_bytes)) {
      raise<CheckpointError>("the storage ", key, " has ", zip_.size(name), " bytes, expected ", num_bytes);
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

}  // namespace

TensorStream stream_of(TensorProvider provide) {
  if (!provide) return nullptr;
  return [provide = std::move(provide)](const at::Tensor& deferred, const PieceSink& sink) {
    const at::Tensor data = provide(deferred).contiguous();
    sink(data.const_data_ptr(), data.nbytes());
  };
}

uint64_t ArchiveContent::num_bytes() const {
  uint64_t bytes = pickled.size();
  for (const at::Tensor& record : records) bytes += record.nbytes();
  return bytes;
}

ArchiveContent make_archive_content(const Value& value, TensorStream stream) {
  const StoragePlan plan(value, /*deferred=*/stream != nullptr);
  return {pickle(value, plan), plan.records(), std::move(stream)};
}

FileSums write_archive_content(const std::filesystem::path& path, const ArchiveContent& content,
                               const io::WriterOptions& options) {
  AtomicFile file(path, options);
  return write_archive_content(file, content);
}

FileSums write_archive_content(AtomicFile& file, const ArchiveContent& content) {
  file.reserve(content.num_bytes());
  write_records(file, content);
  return file.commit();
}

FileSums write_torch_archive(const std::filesystem::path& path, const Value& value,
                             const TensorProvider& provide, const io::WriterOptions& options) {
  return write_archive_content(path, make_archive_content(value, stream_of(provide)), options);
}

Value read_torch_archive(const std::filesystem::path& path, const ReadOptions& options) {
  const ZipReader zip(path, options.sums);
  try {
    check_byte_order(zip);
    StorageCache storages(zip, options.tensor_data);
    const std::string pickled = zip.read_text("data.pkl");
    return unpickle(pickled, [&](const std::string& key, int64_t size) { return storages.load(key, size); });
  } catch (const CheckpointError& error) {
    raise<CheckpointError>("cannot read ", path, ": ", error.what());
  } catch (const c10::Error& error) {  // torch's own error, for example out of memory
    raise<CheckpointError>("cannot read ", path, ": ", error.what_without_backtrace());
  }
}

}  // namespace deepspeed::checkpoint
