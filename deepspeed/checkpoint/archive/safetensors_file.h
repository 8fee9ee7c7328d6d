// Reads tensors from a safetensors file on demand.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include <ATen/core/Tensor.h>

#include "deepspeed/checkpoint/file/file_reader.h"
#include "deepspeed/checkpoint/file/file_sums.h"
#include "deepspeed/tensor/named_tensor.h"

namespace deepspeed::checkpoint {

/// Reads tensors of one safetensors file, which it holds open. Not thread-safe.
class SafetensorsFile {
 public:
  /// Reads only the header. Throws IoError if the file cannot be opened. Throws CheckpointError, naming the
  /// file and the problem, if it is torn or altered; the data has to fill the file without gaps. With `sums`,
  /// everything read is compared with them, since the format has no checksums.
  explicit SafetensorsFile(std::filesystem::path path, std::optional<FileSums> sums = std::nullopt);

  const std::filesystem::path& path() const { return file_.path(); }
  /// Returns the tensors on the meta device, in the order of their data.
  const NamedTensors& tensors() const { return tensors_; }
  bool has(const std::string& name) const { return positions_.contains(name); }
  /// Loads one tensor to the CPU. Throws UsageError if the file has none of that name.
  at::Tensor load(const std::string& name) const;

 private:
  void read_header();

  FileReader file_;
  NamedTensors tensors_;
  std::vector<uint64_t> offsets_;  // of each tensor's data in the file
  std::unordered_map<std::string, size_t> positions_;
};

}  // namespace deepspeed::checkpoint
