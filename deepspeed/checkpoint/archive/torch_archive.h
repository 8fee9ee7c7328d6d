// A file of torch.save is a zip archive of a pickle (protocol 2) and one record a storage. Written files load
// with torch.load(weights_only=True) where they hold no objects but those that torch allows; reading builds
// values and tensors only and never executes anything.
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

/// Gives the data of a tensor on the meta device when it is written: contiguous, on the CPU, as many
/// elements.
using TensorProvider = std::function<at::Tensor(const at::Tensor& deferred)>;

/// Takes the bytes of a tensor in pieces, in the elements' order.
using PieceSink = std::function<void(const void* data, size_t size)>;
using TensorStream = std::function<void(const at::Tensor& deferred, const PieceSink& sink)>;
/// Makes a stream of a provider: one piece a tensor.
DEEPSPEED_API TensorStream stream_of(TensorProvider provide);

/// Writes `value`. Tensors that share a storage share a record; a tensor that is a view of a larger storage
/// is written alone (its own elements), never with the rest of that storage. Throws IoError; an existing file
/// is replaced. Tensors on the meta device are written as `provide` gives them, one after the other, so that
/// no two need be in memory. Returns the file's checksums.
DEEPSPEED_API FileSums write_torch_archive(const std::filesystem::path& path, const Value& value,
                                           const TensorProvider& provide = nullptr,
                                           const io::WriterOptions& options = {});

/// Names the record with the mark of a save (tag/save_mark.h), which torch passes over.
inline constexpr const char* kMarkRecord = "deepspeed_save.json";

/// Holds what a file will have: its pickle, and the storages that the pickle refers to.
struct DEEPSPEED_API ArchiveContent {
  std::string pickled;
  std::vector<at::Tensor> records;  // 1-D, contiguous, on the tensors' own device
  TensorStream stream = nullptr;    // gives the data of records on the meta device
  std::string mark = {};            // of the save; "": the file gets none

  uint64_t num_bytes() const;
};

/// Prepares what write_archive_content() writes later; the records share the memory of the tensors in
/// `value`. `stream`: tensors on the meta device are written as it gives them.
DEEPSPEED_API ArchiveContent make_archive_content(const Value& value, TensorStream stream = nullptr);
/// Writes prepared content, as write_torch_archive() does. Returns the file's checksums.
DEEPSPEED_API FileSums write_archive_content(const std::filesystem::path& path, const ArchiveContent& content,
                                             const io::WriterOptions& options = {});
/// Writes prepared content into a file that is begun, and commits it.
DEEPSPEED_API FileSums write_archive_content(AtomicFile& file, const ArchiveContent& content);

struct ReadOptions {
  bool tensor_data = true;  // false: tensors come on the meta device (sizes and dtypes only)
  std::optional<FileSums> sums = std::nullopt;  // what is read is compared with them
};

/// Reads a file of torch.save (zip format). Throws CheckpointError, naming the file and what is wrong in it:
/// torn, altered, a kind of tensor that is not read (by name), a dtype that torch does not know.
DEEPSPEED_API Value read_torch_archive(const std::filesystem::path& path, const ReadOptions& options = {});

}  // namespace deepspeed::checkpoint
