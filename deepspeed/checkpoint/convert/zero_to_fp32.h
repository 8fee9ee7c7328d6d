// Converts a checkpoint folder of stages 0 to 3 into a single set of named fp32 weights.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "deepspeed/base/export.h"
#include "deepspeed/tensor/named_tensor.h"

namespace deepspeed::checkpoint {

/// Returns the fp32 weights in DeepSpeed's order. That is: buffers, frozen parameters, trained parameters,
/// then aliases of shared parameters, which share their tensor. Stage 0 has no optimizer files, so its
/// weights come in the module's order. Frozen parameters and all buffers, integers included, are cast to
/// fp32. `tag` defaults to the one that `latest` names. `mp_rank` selects a model-parallel rank's part if
/// layers are split over ranks. Throws CheckpointError if a file is missing (naming it) or shapes and counts
/// do not fit. Throws UsageError if layers are split and no rank is selected.
DEEPSPEED_API NamedTensors get_fp32_state_dict_from_zero_checkpoint(
    const std::filesystem::path& dir, const std::optional<std::string>& tag = std::nullopt,
    bool exclude_frozen_parameters = false, std::optional<int> mp_rank = std::nullopt);

/// Returns `tag`, or the one that `latest` names. Throws CheckpointError if there is neither, and UsageError
/// if `tag` leads out of `dir`.
DEEPSPEED_API std::string chosen_tag(const std::filesystem::path& dir, const std::optional<std::string>& tag);

struct ConvertOptions {
  std::optional<std::string> tag = std::nullopt;
  std::string max_shard_size = "5GB";  // "5GB", "200MiB", or bytes
  bool safe_serialization = false;     // safetensors
  bool exclude_frozen_parameters = false;
  /// Selects the model-parallel rank whose part is written, if layers are split over ranks. If unset, each
  /// part gets its own files, prefixed "mp_rank_00_" and so on.
  std::optional<int> mp_rank = std::nullopt;
  /// Called after each piece with the bytes written so far and in total. The counts start anew for each
  /// model-parallel rank's part.
  std::function<void(uint64_t done_bytes, uint64_t all_bytes)> progress = nullptr;
};

/// Writes the fp32 weights, in pieces of a few MiB, into the folder `output`. The folder is created if it is
/// missing. It gets `pytorch_model.bin` or `model.safetensors`, or shards with an index if the weights exceed
/// `max_shard_size`. An `output` that ends in .bin, .pt, .pth or .safetensors is written as one file. Returns
/// the files written.
DEEPSPEED_API std::vector<std::filesystem::path> convert_zero_checkpoint_to_fp32_state_dict(
    const std::filesystem::path& dir, const std::filesystem::path& output,
    const ConvertOptions& options = {});

/// Parses a size in bytes: "5GB" (1e9 each), "200MiB" (2^20 each), "1024". Throws UsageError.
DEEPSPEED_API uint64_t parse_shard_size(const std::string& text);

}  // namespace deepspeed::checkpoint
