// The command-line arguments that DeepSpeed's launcher and its users' programs share. A template on the
// parser's type, so that the library depends on no parser.
#pragma once

#include <string>

namespace deepspeed {

/// The arguments that add_config_arguments() fills in.
struct ConfigArguments {
  bool deepspeed = false;        // --deepspeed: use DeepSpeed (a flag for the program's own use)
  std::string deepspeed_config;  // --deepspeed_config PATH
  bool deepscale = false;        // --deepscale, deprecated name of --deepspeed
  std::string deepscale_config;  // --deepscale_config PATH, deprecated name of --deepspeed_config
  int local_rank = -1;           // --local_rank: what a launcher passes; LOCAL_RANK says the same

  /// Whether --deepspeed was given, under either name.
  bool enabled() const { return deepspeed || deepscale; }
  /// The config's path, under either name; "" where neither was given.
  const std::string& config_path() const {
    return deepspeed_config.empty() ? deepscale_config : deepspeed_config;
  }
};

/// Adds the arguments to `parser`, which works as CLI::App does: `add_flag(name, bool&, help)` and
/// `add_option(name, value&, help)`. `arguments` must live until the parser ran:
///
///     CLI::App app;
///     deepspeed::ConfigArguments arguments;
///     deepspeed::add_config_arguments(app, arguments);
///     CLI11_PARSE(app, argc, argv);
template <class Parser>
void add_config_arguments(Parser& parser, ConfigArguments& arguments) {
  parser.add_flag("--deepspeed", arguments.deepspeed, "Use DeepSpeed");
  parser.add_option("--deepspeed_config", arguments.deepspeed_config, "Path of DeepSpeed's JSON config");
  parser.add_flag("--deepscale", arguments.deepscale, "Deprecated, use --deepspeed");
  parser.add_option("--deepscale_config", arguments.deepscale_config, "Deprecated, use --deepspeed_config");
  parser.add_option("--local_rank", arguments.local_rank,
                    "This process's rank on its machine, set by launchers");
}

}  // namespace deepspeed
