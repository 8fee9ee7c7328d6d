// The safetensors format has 8 bytes of little-endian header length, a JSON header, the tensors' bytes.
#pragma once

#include <filesystem>

#include "deepspeed/base/export.h"
#include "deepspeed/checkpoint/archive/torch_archive.h"
#include "deepspeed/checkpoint/file/file_sums.h"
#include "deepspeed/tensor/named_tensor.h"

namespace deepspeed::checkpoint {

/// Writes named tensors (each with its own bytes, aliases too) durably; an existing file is replaced. Throws
/// IoError, UsageError for a dtype that the format does not know. Tensors on the meta device come from
/// `stream`, as in write_archive_content(). Returns the file's checksums.
DEEPSPEED_API FileSums write_safetensors(const std::filesystem::path& path, const NamedTensors& tensors,
                                         const TensorStream& stream = nullptr);

/// Reads all tensors, in the order of their data; safetensors_file.h reads one at a time. Throws as
/// SafetensorsFile.
DEEPSPEED_API NamedTensors read_safetensors(const std::filesystem::path& path);

}  // namespace deepspeed::checkpoint
