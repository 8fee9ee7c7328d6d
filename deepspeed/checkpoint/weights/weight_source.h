// A source reads named weights from files, whatever wrote them: names, sizes and dtypes at once, data one at
// a time.
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

/// Reads the weights of one file or set of files. Not for two threads at once.
class WeightSource {
 public:
  explicit WeightSource(std::filesystem::path path) : path_(std::move(path)) {}
  virtual ~WeightSource() = default;
  WeightSource(const WeightSource&) = delete;
  WeightSource& operator=(const WeightSource&) = delete;

  const std::filesystem::path& path() const { return path_; }
  /// Returns the weights with the files' sizes and dtypes; the data comes from load().
  const NamedTensors& weights() const { return weights_; }
  /// Returns the names of entries that are no tensors.
  const std::vector<std::string>& other_entries() const { return other_entries_; }

  /// Loads the data of weights()[index] to the CPU. Throws CheckpointError where the file is damaged.
  virtual at::Tensor load(size_t index) const = 0;
  /// Reads all that has a checksum once and keeps nothing. Throws CheckpointError.
  virtual void verify() const = 0;

 protected:
  std::filesystem::path path_;
  NamedTensors weights_;
  std::vector<std::string> other_entries_;
};

/// Opens weights that were written in Python (or here). `path` is
/// - a file of torch.save: a state dictionary, or a dict that holds one as "state_dict", "model_state_dict",
///   "model", "module" or `key`;
/// - a file of safetensors;
/// - an index of shards of either kind ("*.index.json"): each weight comes from the shard that it names;
/// - a folder that holds one of these under the names of Hugging Face: model.safetensors, its index,
///   pytorch_model.bin, its index; the first that is there.
/// Throws IoError where a file cannot be opened, CheckpointError, naming the file, where it is not one of
/// these, torn, altered or missing in a set, NotSupportedError, with the conversion, for torch < 1.6.
DEEPSPEED_API std::unique_ptr<WeightSource> open_weights(const std::filesystem::path& path,
                                                         const std::string& key = "");

/// Opens one file that is no index, as open_weights() does.
std::unique_ptr<WeightSource> open_weight_file(const std::filesystem::path& file,
                                               const std::string& key = "");

/// Opens the fp32 weights of a checkpoint of save_checkpoint(), ours or DeepSpeed's, of any stage from 0
/// to 3; of the model-parallel rank `mp_rank`, where ranks have cut layers. Throws as
/// get_fp32_state_dict_from_zero_checkpoint().
std::unique_ptr<WeightSource> open_zero_checkpoint(const std::filesystem::path& dir,
                                                   const std::optional<std::string>& tag = std::nullopt,
                                                   std::optional<int> mp_rank = std::nullopt);

}  // namespace deepspeed::checkpoint
