// The conversion turns a checkpoint folder of stages 0 to 3 into one set of fp32 weights by name.
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

/// Returns the fp32 weights in DeepSpeed's order: buffers, frozen parameters, trained ones, aliases of shared
/// ones (which share their tensor). Stage 0 has no optimizer files: its module comes in its own order.
/// Buffers, whole numbers too, and frozen parameters are cast to fp32. `tag`: by default the one that
/// `latest` names. `mp_rank`: the model-parallel rank whose part is meant, where ranks have cut layers.
/// Throws CheckpointError where a file is missing (by its name) or shapes and counts do not fit, UsageError
/// where ranks have cut layers and none of them is named.
DEEPSPEED_API NamedTensors get_fp32_state_dict_from_zero_checkpoint(
    const std::filesystem::path& dir, const std::optional<std::string>& tag = std::nullopt,
    bool exclude_frozen_parameters = false, std::optional<int> mp_rank = std::nullopt);

/// Returns `tag`, or the one that `latest` names. Throws CheckpointError where there is neither, UsageError
/// where it leads out of `dir`.
DEEPSPEED_API std::string chosen_tag(const std::filesystem::path& dir, const std::optional<std::string>& tag);

struct ConvertOptions {
  std::optional<std::string> tag = std::nullopt;
  std::string max_shard_size = "5GB";  // "5GB", "200MiB", or bytes
  bool safe_serialization = false;     // safetensors
  bool exclude_frozen_parameters = false;
  /// Names the model-parallel rank whose part is written, where ranks have cut layers. Nothing: each part
  /// gets files of its own, with "mp_rank_00_" and so on before their names.
  std::optional<int> mp_rank = std::nullopt;
  /// Is called after each piece with the bytes of weights that are written, and of all; of
  /// each part by itself.
  std::function<void(uint64_t done_bytes, uint64_t all_bytes)> progress = nullptr;
};

/// Writes the fp32 weights, in pieces of some MiB whatever the size of a weight, into the folder `output`
/// (made where it is absent): `pytorch_model.bin` or `model.safetensors`, or shards with an index where they
/// exceed `max_shard_size`. An `output` that ends in .bin, .pt, .pth or .safetensors is one file. Returns the
/// files written.
DEEPSPEED_API std::vector<std::filesystem::path> convert_zero_checkpoint_to_fp32_state_dict(
    const std::filesystem::path& dir, const std::filesystem::path& output,
    const ConvertOptions& options = {});

/// Reads a number of bytes: "5GB" (1e9 each), "200MiB" (2^20), "1024". Throws UsageError.
DEEPSPEED_API uint64_t parse_shard_size(const std::string& text);

}  // namespace deepspeed::checkpoint
