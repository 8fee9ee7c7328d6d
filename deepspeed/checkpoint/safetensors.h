// The safetensors format: 8 bytes of little-endian header length, a JSON header, the tensors' bytes.
#pragma once

#include <filesystem>

#include "deepspeed/checkpoint/model_states.h"

namespace deepspeed::checkpoint {

/// Writes named tensors (each with its own bytes, aliases too) durably; an existing file is replaced. Throws
/// IoError, UsageError for a dtype that the format does not know.
void write_safetensors(const std::filesystem::path& path, const NamedTensors& tensors);

/// Reads them in the order of their data. Throws CheckpointError naming the file and what is wrong in it.
NamedTensors read_safetensors(const std::filesystem::path& path);

}  // namespace deepspeed::checkpoint
