// The commands of `ds_accelerate` that write and show the YAML file.
#pragma once

#include <iosfwd>
#include <string>
#include <vector>

#include "deepspeed/base/export.h"

namespace deepspeed::accelerate {

/// Says where the answers for `config` come from and where the file goes.
struct ConfigCommand {
  std::string config_file = {};   ///< empty: default_config_file()
  std::string answers_file = {};  ///< YAML or JSON, by the ids of the questions; empty: a person is asked
  std::vector<std::string> answers = {};  ///< "ID=VALUE", in addition to the file
};

/// Asks the questions and writes the file. Throws ConfigError for a wrong answer, naming its id.
DEEPSPEED_API void run_config(const ConfigCommand& command, std::istream& in, std::ostream& out);

/// Writes the config of this machine without questions, unless the file exists, which is said.
DEEPSPEED_API void run_default_config(const std::string& config_file, const std::string& mixed_precision,
                                      std::ostream& out);

/// Prints versions, the machine, and what the file says.
DEEPSPEED_API void run_env(const std::string& config_file, std::ostream& out);

}  // namespace deepspeed::accelerate
