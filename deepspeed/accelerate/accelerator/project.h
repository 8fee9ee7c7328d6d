// Where an Accelerator keeps checkpoints and logs.
#pragma once

#include <filesystem>
#include <optional>
#include <string>

#include "deepspeed/base/export.h"

namespace deepspeed::accelerate {

/// Says where save_state() and the trackers write.
struct ProjectConfiguration {
  std::string project_dir = {};
  std::string logging_dir = {};  ///< default: project_dir
  bool automatic_checkpoint_naming =
      false;  ///< save_state() writes `project_dir/checkpoints/checkpoint_<iteration>`
  std::optional<int> total_limit = {};  ///< checkpoints to keep; the oldest are removed
  int iteration = 0;                    ///< number of the next checkpoint
  bool save_on_each_node = false;       ///< the first rank of each machine writes, instead of rank 0
};

/// Returns the number of a folder `checkpoint_<number>`; nothing for another name.
DEEPSPEED_API std::optional<int> number_of_checkpoint(const std::filesystem::path& folder);
/// Returns `checkpoint_<iteration>` in the project's folder. If that makes too many, `may_remove` says whether
/// this rank removes the oldest. Throws UsageError if this checkpoint or a later one exists.
DEEPSPEED_API std::filesystem::path next_checkpoint(const ProjectConfiguration& project, bool may_remove);
/// Returns the folder of the latest checkpoint. Throws UsageError if there is none.
DEEPSPEED_API std::filesystem::path latest_checkpoint(const ProjectConfiguration& project);

}  // namespace deepspeed::accelerate
