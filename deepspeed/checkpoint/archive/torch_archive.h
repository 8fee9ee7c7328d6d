// Reads and writes files of torch.save: zip archives of a pickle (protocol 2) and one record per storage.
// Written files load with torch.load(weights_only=True) if their only objects are those that torch allows.
// Reading only builds values and tensors and never executes anything.
#pragma once

#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "deepspeed/base/export.h"
#include "deepspeed/checkpoint/file/file_sums.h"
#include "deepspeed/checkpoint/pickle/value.h"
#include "deepspeed/io/file_writer.h"

namespace deepspeed::checkpoint {

class AtomicFile;

/// Returns the data of a meta tensor when it is written. The data is contiguous, on the CPU, and has as many
/// elements as `deferred`.
using TensorProvider = std::function<at::Tensor(const at::Tensor& deferred)>;

/// Receives the bytes of a tensor in pieces, in element order.
using PieceSink = std::function<void(const void* data, size_t size)>;
using TensorStream = std::function<void(const at::Tensor& deferred, const PieceSink& sink)>;
/// Converts a provider into a stream, with one piece per tensor. Null gives null.
DEEPSPEED_API TensorStream stream_of(TensorProvider provide);

/// Writes `value` to a file, replacing an existing one. Tensors that overlap in one storage share a record. A
/// view of a larger storage is written with only its own elements. `provide` returns the data of tensors on
/// the meta device. It is called for one tensor after the other, so that no two have to be in memory. Throws
/// IoError. Returns the file's checksums.
DEEPSPEED_API FileSums write_torch_archive(const std::filesystem::path& path, const Value& value,
                                           const TensorProvider& provide = nullptr,
                                           const io::WriterOptions& options = {});

/// Name of the record with the mark of a save (tag/save_mark.h), which torch ignores.
inline constexpr const char* kMarkRecord = "deepspeed_save.json";

/// Holds the future content of a file: its pickle and the storages it refers to.
struct DEEPSPEED_API ArchiveContent {
  std::string pickled;
  std::vector<at::Tensor> records;  // 1-D, contiguous, on the tensors' own device
  TensorStream stream = nullptr;    // provides the data of records on the meta device
  std::string mark = {};            // text of the save's mark; "": the file gets none

  uint64_t num_bytes() const;
};

/// Prepares content for write_archive_content(). The records share the memory of the tensors in `value`.
/// `stream` provides the data of tensors on the meta device.
DEEPSPEED_API ArchiveContent make_archive_content(const Value& value, TensorStream stream = nullptr);
/// Writes prepared content like write_torch_archive(). Returns the file's checksums.
DEEPSPEED_API FileSums write_archive_content(const std::filesystem::path& path, const ArchiveContent& content,
                                             const io::WriterOptions& options = {});
/// Writes prepared content into an open file and commits it.
DEEPSPEED_API FileSums write_archive_content(AtomicFile& file, const ArchiveContent& content);

struct ReadOptions {
  bool tensor_data = true;  // false: tensors are on the meta device (sizes and dtypes only)
  std::optional<FileSums> sums = std::nullopt;  // checksums to compare with what is read
};

/// Reads a file of torch.save (zip format). Throws CheckpointError, naming the file and the problem: it is
/// torn or altered, or has a kind of tensor or a dtype that cannot be read.
DEEPSPEED_API Value read_torch_archive(const std::filesystem::path& path, const ReadOptions& options = {});

}  // namespace deepspeed::checkpoint
