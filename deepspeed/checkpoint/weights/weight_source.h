// Reads named weights from files of any program: names, sizes and dtypes at once, data on demand.
#pragma once

#include <cstddef>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>

#include "deepspeed/base/export.h"
#include "deepspeed/checkpoint/content/model_states.h"

namespace deepspeed::checkpoint {

/// Reads the weights of one file or set of files. Not thread-safe.
class WeightSource {
 public:
  explicit WeightSource(std::filesystem::path path) : path_(std::move(path)) {}
  virtual ~WeightSource() = default;
  WeightSource(const WeightSource&) = delete;
  WeightSource& operator=(const WeightSource&) = delete;

  const std::filesystem::path& path() const { return path_; }
  /// Returns the weights with their sizes and dtypes; load() returns the data.
  const NamedTensors& weights() const { return weights_; }
  /// Returns the names of entries in the files that are not tensors.
  const std::vector<std::string>& other_entries() const { return other_entries_; }

  /// Loads the data of weights()[index] to the CPU. Throws CheckpointError if the file is damaged.
  virtual at::Tensor load(size_t index) const = 0;
  /// Checks all checksums, by reading the data once and keeping nothing. Throws CheckpointError.
  virtual void verify() const = 0;

 protected:
  std::filesystem::path path_;
  NamedTensors weights_;
  std::vector<std::string> other_entries_;
};

/// Opens weights written in Python or here. `path` is one of these:
/// - a file of torch.save: a state dictionary, or a dict that holds one as "state_dict", "model_state_dict",
///   "model", "module" or `key`;
/// - a file of safetensors;
/// - an index of shards of either format ("*.index.json"): each weight comes from the shard that it names;
/// - a folder that holds one of these under Hugging Face's names. The first of model.safetensors, its index,
///   pytorch_model.bin and its index is used.
/// Throws IoError if a file cannot be opened. Throws CheckpointError, naming the file, if it has another
/// format, is torn or altered, or is missing in a set. Throws NotSupportedError, telling how to convert the
/// file, if it has the format of torch before 1.6.
DEEPSPEED_API std::unique_ptr<WeightSource> open_weights(const std::filesystem::path& path,
                                                         const std::string& key = "");

/// Opens the fp32 weights of a checkpoint folder, ours or DeepSpeed's, of any stage. `mp_rank` selects a
/// model-parallel rank if layers are split over ranks. Throws like
/// get_fp32_state_dict_from_zero_checkpoint().
std::unique_ptr<WeightSource> open_zero_checkpoint(const std::filesystem::path& dir,
                                                   const std::optional<std::string>& tag = std::nullopt,
                                                   std::optional<int> mp_rank = std::nullopt);

}  // namespace deepspeed::checkpoint
