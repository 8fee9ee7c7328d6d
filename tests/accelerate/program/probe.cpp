// Shows one part of accelerate/ at a time, for tests that compare it with Accelerate:
//   accelerate_probe values FILE            the values of a YAML file, as JSON
//   accelerate_probe rewrite FILE OUTPUT    reads a file and writes it
//   accelerate_probe variables WORDS...     the variables that `launch WORDS` sets, as JSON
//   accelerate_probe plugin PRECISION       the config that a DeepSpeedPlugin makes, as Python prints it
// An error is printed as ERROR and its text, and gives 1.
#include <iostream>
#include <string>
#include <vector>

#include "deepspeed/accelerate/launch/launch_command.h"
#include "deepspeed/accelerate/plugin/deepspeed_plugin.h"
#include "deepspeed/accelerate/plugin/python_text.h"

namespace {

using namespace deepspeed::accelerate;

deepspeed::Json variables_of(const std::vector<std::string>& words) {
  const LaunchFlags flags = parse_launch(words).flags;
  const auto file = config_of(flags);
  deepspeed::Json variables = deepspeed::Json::object();
  const LaunchSettings settings = merge_settings(flags, file ? &*file : nullptr, 0);
  for (const auto& [name, value] : launch_variables(settings, {})) variables[name] = value;
  return variables;
}

std::string shown(const std::string& command, const std::vector<std::string>& words) {
  if (command == "values") return ClusterConfig::from_file(words.at(0)).values.dump();
  if (command == "variables") return variables_of(words).dump();
  if (command == "plugin") {
    DeepSpeedPlugin plugin;
    plugin.set_mixed_precision(words.at(0));
    return python_repr(plugin.deepspeed_config());
  }
  ClusterConfig::from_file(words.at(0)).to_file(words.at(1));
  return "written";
}

}  // namespace

int main(int argc, char** argv) {
  const std::vector<std::string> words(argv + 1, argv + argc);
  try {
    std::cout << shown(words.at(0), {words.begin() + 1, words.end()}) << std::endl;
    return 0;
  } catch (const std::exception& error) {
    std::cout << "ERROR " << error.what() << std::endl;
    return 1;
  }
}
