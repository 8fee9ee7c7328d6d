// Files with variables for all launches: `.deepspeed_env` in the home folder and in the current folder.
#pragma once

#include <filesystem>
#include <vector>

#include "deepspeed/launcher/plan/environment.h"

namespace deepspeed::launcher {

/// Names a file that replaces .deepspeed_env: a name in those folders, or a whole path.
inline constexpr const char* kEnvironmentFileVariable = "DS_ENV_FILE";

struct EnvironmentFiles {
  std::vector<std::filesystem::path> read;  ///< the files that exist, in the order of reading
  Environment variables;                    ///< a later file's value replaces an earlier one's
};

/// Reads the files. `base` has HOME and perhaps DS_ENV_FILE. Each variable is a line KEY=VALUE. The value is
/// taken literally, including quotes. Empty lines and lines that start with '#' are skipped. Throws
/// UsageError, naming file and line, for any other line, and IoError for a file that cannot be read.
EnvironmentFiles read_environment_files(const Environment& base, const std::filesystem::path& working_folder);

}  // namespace deepspeed::launcher
