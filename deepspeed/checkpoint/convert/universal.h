// Converts a checkpoint of stages 0 to 3 into a universal one. A universal checkpoint loads at any stage and
// on any number of ranks, here and in DeepSpeed (checkpoint.load_universal).
#pragma once

#include <cstddef>
#include <filesystem>
#include <functional>

#include "deepspeed/base/export.h"

namespace deepspeed::checkpoint {

struct UniversalOptions {
  /// Number of threads that write parameters. Each holds one state of one parameter at a time.
  int num_workers = 2;
  /// Makes a pattern of `universal_checkpoint_info` that matches no parameter an error instead of a warning.
  bool strict = true;
  /// Called after each parameter, with the numbers of parameters done and in all. No two threads call it at
  /// once.
  std::function<void(size_t done, size_t all)> progress = nullptr;
};

/// Converts the checkpoint in `input_folder` (<dir>/global_step5) into a universal one. `output_folder`
/// appears whole or not at all, and `latest_universal` next to it then names it. An older universal
/// checkpoint there is replaced; other files in its folder stay. Random streams and the position in the data
/// are converted too. Throws CheckpointError, naming the file, if an input file is missing, torn or altered.
/// Throws IoError if the output cannot be written, UsageError if `output_folder` is something else than a
/// universal checkpoint, and NotSupportedError if ranks divide the layers.
DEEPSPEED_API void convert_to_universal(const std::filesystem::path& input_folder,
                                        const std::filesystem::path& output_folder,
                                        const UniversalOptions& options = {});

}  // namespace deepspeed::checkpoint
