// What `launch` starts and how, from its flags and the YAML file. A flag wins over the file.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "deepspeed/accelerate/config/cluster_config.h"
#include "deepspeed/base/export.h"
#include "deepspeed/base/json.h"
#include "deepspeed/launcher/plan/environment.h"

namespace deepspeed::accelerate {

/// Holds the command line of `launch`, as given.
struct LaunchFlags {
  std::string config_file;
  bool use_deepspeed = false;
  bool multi_gpu = false;
  bool cpu = false;
  bool debug = false;
  bool quiet = false;
  bool enable_cpu_affinity = false;
  bool same_network = false;
  bool module = false;
  bool no_python = false;
  std::optional<std::string> mixed_precision;
  std::optional<int> num_processes;  ///< of all machines
  std::optional<int> num_machines;
  std::optional<int> machine_rank;
  std::optional<int> num_cpu_threads_per_process;
  std::optional<int> max_restarts;
  std::optional<std::string> gpu_ids;
  std::optional<std::string> main_process_ip;
  std::optional<int> main_process_port;
  std::optional<std::string> log_dir;
  std::map<std::string, std::string> deepspeed;  ///< by the key of deepspeed_fields()
  std::string program;
  std::vector<std::string> program_args;
};

/// Holds what is started.
struct LaunchSettings {
  bool use_deepspeed = false;
  bool use_cpu = false;
  bool debug = false;
  bool quiet = false;
  bool enable_cpu_affinity = false;
  bool module = false;
  bool no_python = false;
  std::string mixed_precision = "no";
  int num_processes = 1;  ///< of all machines
  int num_machines = 1;
  int machine_rank = 0;
  std::optional<int> threads_per_process;
  std::optional<int> max_restarts;
  std::string gpu_ids;  ///< "all", or numbers separated by commas
  std::string main_process_ip;
  std::optional<int> main_process_port;  ///< none: the launcher's
  std::string log_dir;
  std::map<std::string, Json> deepspeed;    ///< by the key of deepspeed_fields(); absent: not given
  std::vector<std::string> fields_of_file;  ///< the keys that the file has, which DeepSpeedPlugin checks
  std::vector<std::string> defaults_taken;  ///< what neither flags nor file say, for a notice
  std::string program;
  std::vector<std::string> program_args;
};

/// Merges flags and file. file: null if there is none. num_gpus: of this machine. Throws UsageError, naming
/// the flag or key, for flags that contradict each other, and for `nvme` without a path.
DEEPSPEED_API LaunchSettings merge_settings(const LaunchFlags& flags, const ClusterConfig* file,
                                            int num_gpus);

/// Returns the variables that the processes get in addition to `own`, as `accelerate launch` sets them. In
/// addition, the paths for nvme are set, which it leaves out.
DEEPSPEED_API launcher::Environment launch_variables(const LaunchSettings& settings,
                                                     const launcher::Environment& own);

/// Returns the words of a `deepspeed` command line that starts the program.
DEEPSPEED_API std::vector<std::string> launcher_words(const LaunchSettings& settings);

}  // namespace deepspeed::accelerate
