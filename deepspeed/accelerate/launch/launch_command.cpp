// Parses the words of launch up to the program, reads the file, sets the variables in this process, and runs
// the launcher, whose ranks inherit them.
#include "deepspeed/accelerate/launch/launch_command.h"

#include <algorithm>
#include <filesystem>
#include <iostream>
#include <utility>

#include <CLI/CLI.hpp>

#include "deepspeed/accelerate/config/deepspeed_fields.h"
#include "deepspeed/accelerate/plugin/python_text.h"
#include "deepspeed/base/env.h"
#include "deepspeed/base/error.h"
#include "deepspeed/base/log.h"
#include "deepspeed/base/text.h"
#include "deepspeed/launcher/command.h"
#include "deepspeed/launcher/plan/machine.h"

namespace deepspeed::accelerate {
namespace {

/// Lists beginnings of Accelerate's flags that have no meaning here, and the way out.
constexpr std::pair<const char*, const char*> kOtherFlags[] = {
    {"--tpu", "it runs on CPUs and NVIDIA GPUs"},
    {"--no_tpu", "it runs on CPUs and NVIDIA GPUs"},
    {"--vm", "it runs on CPUs and NVIDIA GPUs"},
    {"--env", "set the variable in front of the command"},
    {"--main_training_function", "it runs on CPUs and NVIDIA GPUs"},
    {"--downcast_bf16", "it runs on CPUs and NVIDIA GPUs"},
    {"--use_fsdp", "use --use_deepspeed with --zero_stage 3"},
    {"--fsdp_", "use --use_deepspeed with --zero_stage 3"},
    {"--use_megatron_lm", "use --use_deepspeed"},
    {"--megatron_lm_", "use --use_deepspeed"},
    {"--fp8_", "use --mixed_precision bf16"},
    {"--aws_", "start the program on machines of your own"},
    {"--dynamo_", "call torch.compile() in a Python program"},
    {"--use_parallelism_config", "use a config file of DeepSpeed"},
    {"--parallelism_config_", "use a config file of DeepSpeed"},
    {"--mpirun_hostfile", "use --deepspeed_hostfile with --deepspeed_multinode_launcher openmpi"},
    {"--role", "it has one role"},
    {"--tee", "use --log_dir"},
    {"-t", "use --log_dir"},
    {"--rdzv_", "name the first machine by --main_process_ip and --main_process_port"},
    {"--monitor_interval", "ranks are watched all the time"},
};

/// Returns the flag with underscores, and without its value.
std::string name_of_flag(const std::string& word) {
  std::string name = word.substr(0, word.find('='));
  if (name.starts_with("--")) std::replace(name.begin() + 2, name.end(), '-', '_');
  return name;
}

void refuse_other_flags(const std::string& word) {
  const std::string name = name_of_flag(word);
  for (const auto& [beginning, way_out] : kOtherFlags) {
    const bool whole = std::string(beginning).back() != '_';
    if (whole ? name == beginning : name.starts_with(beginning))
      raise<NotSupportedError>("`launch` does not have Accelerate's ", name, ": ", way_out);
  }
}

/// Returns "--num_processes,--num-processes" for "num_processes".
std::string both_spellings(const std::string& name) {
  std::string hyphens = name;
  std::replace(hyphens.begin(), hyphens.end(), '_', '-');
  return hyphens == name ? "--" + name : "--" + name + ",--" + hyphens;
}

void add_flags(CLI::App& app, LaunchFlags& flags) {
  const auto option = [&](const char* name, auto& value, const char* help) {
    app.add_option(both_spellings(name), value, help);
  };
  const auto flag = [&](const char* name, bool& value, const char* help, const char* short_name = "") {
    app.add_flag(std::string(short_name) + both_spellings(name), value, help);
  };
  option("config_file", flags.config_file,
         "The YAML file that `config` wrote (default_config.yaml, if it is there)");
  flag("quiet", flags.quiet, "Print errors alone", "-q,");
  flag("cpu", flags.cpu, "Run on the CPU, without DeepSpeed");
  flag("multi_gpu", flags.multi_gpu, "Run one process a GPU, without ZeRO");
  flag("use_deepspeed", flags.use_deepspeed, "Run with DeepSpeed");
  app.add_option(both_spellings("mixed_precision"), flags.mixed_precision, "no, fp16 or bf16 (no)")
      ->check(CLI::IsMember({"no", "fp16", "bf16", "fp8"}));
  option("num_processes", flags.num_processes, "Processes of all machines (one a GPU)");
  option("num_machines", flags.num_machines, "Machines (1)");
  option("machine_rank", flags.machine_rank, "This machine's number (0)");
  option("main_process_ip", flags.main_process_ip, "Address of the machine with rank 0");
  option("main_process_port", flags.main_process_port, "Port at which the ranks meet; 0: a free one");
  flag("same_network", flags.same_network, "Accepted; machines may be in any network");
  option("gpu_ids", flags.gpu_ids, "GPUs of this machine, separated by commas (all)");
  option("num_cpu_threads_per_process", flags.num_cpu_threads_per_process, "OMP_NUM_THREADS of each process");
  flag("enable_cpu_affinity", flags.enable_cpu_affinity, "Bind processes to cores near their GPU");
  option("max_restarts", flags.max_restarts, "How often a failed job starts again (0)");
  option("log_dir", flags.log_dir, "Folder for one log file a rank");
  flag("module", flags.module, "The program is the name of a Python module", "-m,");
  flag("no_python", flags.no_python, "Run a .py file as the executable that it is");
  flag("debug", flags.debug, "Check that ranks call the same operations");
  for (const DeepSpeedField& field : deepspeed_fields()) {
    const auto take = [&flags, key = std::string(field.key)](const std::string& text) {
      flags.deepspeed[key] = text;
    };
    app.add_option_function<std::string>(both_spellings(field.key), take, field.help)->group("DeepSpeed");
  }
}

/// Formats CLI11's help. The usage line shows where the program's own arguments go.
class HelpText : public CLI::Formatter {
 public:
  std::string make_usage(const CLI::App*, std::string) const override {
    return "Usage: ds_accelerate launch [flags] PROGRAM [arguments of PROGRAM]\n";
  }
};

}  // namespace

ParsedLaunch parse_launch(const std::vector<std::string>& words) {
  ParsedLaunch parsed;
  CLI::App app("Starts a program, one process a GPU, with the settings of Accelerate's YAML file.",
               "ds_accelerate launch");
  app.formatter(std::make_shared<HelpText>());
  app.prefix_command();
  app.option_defaults()->take_last();
  add_flags(app, parsed.flags);
  try {
    std::vector<std::string> reversed(words.rbegin(), words.rend());
    app.parse(std::move(reversed));
  } catch (const CLI::CallForHelp&) {
    parsed.text_to_print = app.help();
    return parsed;
  } catch (const CLI::ParseError& error) {
    raise<UsageError>(error.what());
  }
  std::vector<std::string> rest = app.remaining();
  const bool explicit_end = !rest.empty() && rest.front() == "--";
  if (explicit_end) rest.erase(rest.begin());
  if (rest.empty())
    raise<UsageError>("no PROGRAM given, expected: ds_accelerate launch [flags] PROGRAM [its arguments]");
  if (!explicit_end && rest.front().size() > 1 && rest.front()[0] == '-') {
    refuse_other_flags(rest.front());
    raise<UsageError>("unknown flag '", rest.front(),
                      "' before PROGRAM; `ds_accelerate launch --help` lists the flags, and the program's "
                      "own come after it");
  }
  parsed.flags.program = rest.front();
  parsed.flags.program_args.assign(rest.begin() + 1, rest.end());
  return parsed;
}

std::optional<ClusterConfig> config_of(const LaunchFlags& flags) {
  if (!flags.config_file.empty()) {
    if (!std::filesystem::is_regular_file(flags.config_file)) {
      raise<UsageError>(
          "The passed configuration file `", flags.config_file,
          "` does not exist. Please pass an existing file to ",
          "`ds_accelerate launch`, or use the default one created through `ds_accelerate config` and run ",
          "`ds_accelerate launch` without the `--config_file` argument.");
    }
    return ClusterConfig::from_file(flags.config_file);
  }
  std::error_code status;
  if (flags.cpu || !std::filesystem::is_regular_file(default_config_file(), status)) return {};
  return ClusterConfig::from_file(default_config_file());
}

int run_launch(const std::vector<std::string>& words) {
  const ParsedLaunch parsed = parse_launch(words);
  if (parsed.text_to_print) {
    std::cout << *parsed.text_to_print;
    return 0;
  }
  const auto file = config_of(parsed.flags);
  const LaunchSettings settings =
      merge_settings(parsed.flags, file ? &*file : nullptr, launcher::read_machine().num_gpus);
  if (!settings.defaults_taken.empty()) {
    std::string lines;
    for (const std::string& line : settings.defaults_taken) lines += "\n\t" + line;
    log::warning(
        "The following values were not passed to `ds_accelerate launch` and had defaults used instead:",
        lines,
        "\nTo avoid this warning pass in values for each of the problematic parameters or run `ds_accelerate "
        "config`.");
  }
  if (const auto path = settings.deepspeed.find("deepspeed_config_file"); path != settings.deepspeed.end()) {
    const std::string name = python_str(path->second);
    if (name.find('{') == std::string::npos && name != "none" && !std::filesystem::exists(name) &&
        !decode_base64(name))
      raise<UsageError>("deepspeed_config_file is ", name, ", and there is no such file");
  }
  for (const auto& [name, value] : launch_variables(settings, launcher::current_environment()))
    env::set(name.c_str(), value);
  return launcher::run_command(launcher_words(settings));
}

}  // namespace deepspeed::accelerate
