// This reads a file of torch.save whose large tensors stay in the file until parts of them are asked for.
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

/// Holds one file open. Not for two threads at once.
class DeferredArchive {
 public:
  /// Bounds what is read at once. Storages of more bytes are deferred: their tensors in value() are on the
  /// meta device.
  static constexpr int64_t kDeferredBytes = 64 * 1024;

  /// Reads everything but the deferred storages. Throws as read_torch_archive(). With `sums` all that is read
  /// is compared with them.
  explicit DeferredArchive(std::filesystem::path path, std::optional<FileSums> sums = std::nullopt);

  const std::filesystem::path& path() const { return zip_.path(); }
  const Value& value() const { return value_; }
  /// Returns the text of the save's mark (tag/save_mark.h); nothing where the file has none.
  const std::optional<std::string>& mark() const { return mark_; }
  /// Says whether all that is read is compared with the file's sums.
  bool is_verified() const { return zip_.is_verified(); }
  uint64_t bytes_read() const { return zip_.bytes_read(); }
  /// Frees the memory that holds bytes read ahead.
  void release() const { zip_.release(); }

  /// Copies the elements [begin, end) of `tensor`, counted in its own order, into `destination` (1-D, as
  /// many, any dtype and device). `tensor`: contiguous, of value(), deferred or not.
  void read(const at::Tensor& tensor, const Interval& elements, const at::Tensor& destination) const;
  /// Loads the whole tensor to the CPU, and compares its record's own checksum where it fills the record.
  at::Tensor load(const at::Tensor& tensor) const;
  /// Returns `value` with all tensors inside of it loaded. Views of one storage share it again.
  Value load(Value value) const;
  /// Reads all that was deferred once, in small pieces, and compares it with its checksums. Throws
  /// CheckpointError.
  void verify() const;
  /// Reads what is left of records that were begun in parts, as ZipReader::check_rest().
  void check_rest() const { zip_.check_rest(); }
  /// Compares no more parts of records: another reader of the file has.
  void trust() { zip_.trust(); }

 private:
  using Storages = std::unordered_map<const void*, at::Storage>;

  /// Loads what value() defers, each storage once; `loaded` has those that are loaded.
  Value load(Value value, Storages& loaded) const;
  at::Storage load_storage(const at::Tensor& tensor) const;
  void read_bytes(const at::Tensor& tensor, int64_t first, void* destination, int64_t numel) const;
  const std::string& record_of(const at::Tensor& tensor) const;

  ZipReader zip_;
  std::unordered_map<const void*, std::string> records_;  // by deferred storage; value_ keeps them alive
  Value value_;
  std::optional<std::string> mark_;
};

}  // namespace deepspeed::checkpoint
