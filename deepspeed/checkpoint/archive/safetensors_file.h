// This reads a file of safetensors whose tensors stay in it until they are asked for.
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

/// Holds one file open. Not for two threads at once.
class SafetensorsFile {
 public:
  /// Reads the header alone. Throws IoError where the file cannot be opened, CheckpointError, naming it and
  /// what is wrong in it, where it is torn or altered: the data has to fill the file without a gap. With
  /// `sums` all that is read is compared with them; the format itself has no checksums.
  explicit SafetensorsFile(std::filesystem::path path, std::optional<FileSums> sums = std::nullopt);

  const std::filesystem::path& path() const { return file_.path(); }
  /// Returns names, sizes and dtypes in the order of the data, on the meta device.
  const NamedTensors& tensors() const { return tensors_; }
  bool has(const std::string& name) const { return positions_.contains(name); }
  /// Loads one tensor to the CPU. Throws UsageError where the file has none of that name.
  at::Tensor load(const std::string& name) const;

 private:
  void read_header();

  FileReader file_;
  NamedTensors tensors_;
  std::vector<uint64_t> offsets_;  // of each tensor's data in the file
  std::unordered_map<std::string, size_t> positions_;
};

}  // namespace deepspeed::checkpoint
