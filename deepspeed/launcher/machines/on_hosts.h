// Runs a command on all hosts of a hostfile, for the program ds_ssh.
#pragma once

#include <string>
#include <vector>

#include "deepspeed/base/export.h"

namespace deepspeed::launcher {

/// Runs the program `ds_ssh`. `words` are its arguments: [-f HOSTFILE] [-p PORT] COMMAND [arguments]. The
/// command runs on all hosts at once, with its words unchanged. Each line of output is printed after its
/// host's name. Returns the greatest exit code: 255 for a host that cannot be reached, 2 for a wrong command
/// line.
DEEPSPEED_API int run_on_hosts(const std::vector<std::string>& words);

}  // namespace deepspeed::launcher
