// A command on all hosts of a hostfile, as the program ds_ssh runs it.
#pragma once

#include <string>
#include <vector>

#include "deepspeed/base/export.h"

namespace deepspeed::launcher {

/// Runs the program `ds_ssh` with `words`, which follow its name: [-f HOSTFILE] [-p PORT] COMMAND
/// [arguments]. The command runs on all hosts at once, its words as they are given; each line of its output
/// is written with its host in front. Returns the greatest exit code, 255 for a host that cannot be reached,
/// 2 for a wrong command line.
DEEPSPEED_API int run_on_hosts(const std::vector<std::string>& words);

}  // namespace deepspeed::launcher
