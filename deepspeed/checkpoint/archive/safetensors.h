// Reads and writes the safetensors format: 8 bytes of little-endian header length, a JSON header, the
// tensors' bytes.
#pragma once

#include <filesystem>

#include "deepspeed/base/export.h"
#include "deepspeed/checkpoint/archive/torch_archive.h"
#include "deepspeed/checkpoint/file/file_sums.h"
#include "deepspeed/tensor/named_tensor.h"

namespace deepspeed::checkpoint {

/// Writes named tensors durably, replacing an existing file. Tensors that share memory are each written in
/// full. Throws IoError, and UsageError for a dtype that the format does not support. `stream` provides the
/// data of tensors on the meta device, as in write_archive_content(). Returns the file's checksums.
DEEPSPEED_API FileSums write_safetensors(const std::filesystem::path& path, const NamedTensors& tensors,
                                         const TensorStream& stream = nullptr);

/// Reads all tensors, in the order of their data in the file. To read single ones see safetensors_file.h.
/// Throws like SafetensorsFile.
DEEPSPEED_API NamedTensors read_safetensors(const std::filesystem::path& path);

}  // namespace deepspeed::checkpoint
