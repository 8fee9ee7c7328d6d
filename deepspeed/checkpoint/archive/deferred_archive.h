// Reads a file of torch.save but leaves large tensors in it until parts of them are requested.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>

#include <ATen/core/Tensor.h>
#include <c10/core/Storage.h>

#include "deepspeed/base/interval.h"
#include "deepspeed/checkpoint/archive/zip_reader.h"
#include "deepspeed/checkpoint/file/file_sums.h"
#include "deepspeed/checkpoint/pickle/value.h"

namespace deepspeed::checkpoint {

/// Reads one file of torch.save on demand, which it holds open. Not thread-safe.
class DeferredArchive {
 public:
  /// Size in bytes above which a storage is deferred. Tensors of a deferred storage are on the meta device in
  /// value().
  static constexpr int64_t kDeferredBytes = 64 * 1024;

  /// Reads everything except the deferred storages. Throws like read_torch_archive(). With `sums`, everything
  /// read is compared with them.
  explicit DeferredArchive(std::filesystem::path path, std::optional<FileSums> sums = std::nullopt);

  const std::filesystem::path& path() const { return zip_.path(); }
  const Value& value() const { return value_; }
  /// Returns the text that identifies the file's save (tag/save_mark.h); nothing if the file has none.
  const std::optional<std::string>& mark() const { return mark_; }
  /// Returns whether everything read is compared with the file's checksums.
  bool is_verified() const { return zip_.is_verified(); }
  uint64_t bytes_read() const { return zip_.bytes_read(); }
  /// Frees the read-ahead buffer until the next read.
  void release() const { zip_.release(); }

  /// Copies `elements` of `tensor`, counted in row-major order, into `destination`. `destination` is 1-D, of
  /// that size, any dtype and device. `tensor` is a contiguous tensor of value(), deferred or not. Throws
  /// CheckpointError if the sizes do not fit or the bytes are altered.
  void read(const at::Tensor& tensor, const Interval& elements, const at::Tensor& destination) const;
  /// Loads the whole tensor to the CPU. A tensor that is not deferred is returned unchanged. If the tensor
  /// fills its zip record, the record's own checksum is checked.
  at::Tensor load(const at::Tensor& tensor) const;
  /// Returns `value` with all tensors inside it loaded. Views of one storage still share it.
  Value load(Value value) const;
  /// Reads all deferred data once, in small pieces, and checks its checksums. Throws CheckpointError.
  void verify() const;
  /// Checks the rest of records that were partly read. See ZipReader::check_rest().
  void check_rest() const { zip_.check_rest(); }
  /// Turns off checksums for parts of records. Call it if another reader of the file has checked them.
  void trust() { zip_.trust(); }

 private:
  using Storages = std::unordered_map<const void*, at::Storage>;

  /// Returns `value` with its deferred tensors loaded. `loaded` keeps each storage, so that none is read
  /// twice.
  Value load(Value value, Storages& loaded) const;
  at::Storage load_storage(const at::Tensor& tensor) const;
  void read_bytes(const at::Tensor& tensor, int64_t first, void* destination, int64_t numel) const;
  const std::string& record_of(const at::Tensor& tensor) const;

  ZipReader zip_;
  std::unordered_map<const void*, std::string> records_;  // by deferred storage, kept alive by value_
  Value value_;
  std::optional<std::string> mark_;
};

}  // namespace deepspeed::checkpoint
