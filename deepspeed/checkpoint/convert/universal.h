// The conversion turns a checkpoint of stages 0 to 3 into a universal one, which loads at any stage on any
// number of ranks, here and in DeepSpeed (checkpoint.load_universal).
#pragma once

#include <cstddef>
#include <filesystem>
#include <functional>

#include "deepspeed/base/export.h"

namespace deepspeed::checkpoint {

struct UniversalOptions {
  /// Counts the threads that write parameters. Each holds one state of one parameter at a time.
  int num_workers = 2;
  /// Makes a pattern of `universal_checkpoint_info` that fits no parameter an error; false: a warning.
  bool strict = true;
  /// Is called after each parameter, by one thread at a time.
  std::function<void(size_t done, size_t all)> progress = nullptr;
};

/// Converts the tag in `input_folder` (<dir>/global_step5). `output_folder` appears whole or not at all, and
/// `latest_universal` beside it then names it; an older universal checkpoint there is replaced, and the other
/// files of its folder stay. Random streams and the position of the data come along. Throws CheckpointError
/// where a file of the input is missing, torn or altered (by its name), IoError where the output cannot be
/// written, UsageError where something else is in the output's place, NotSupportedError for model parallel
/// checkpoints.
DEEPSPEED_API void convert_to_universal(const std::filesystem::path& input_folder,
                                        const std::filesystem::path& output_folder,
                                        const UniversalOptions& options = {});

}  // namespace deepspeed::checkpoint
