// Merges flags and file, and turns the result into variables and into the words of the launcher. A flag wins
// over the file. The file's keys are listed for the plugin, which refuses some beside a config file.
#include "deepspeed/accelerate/launch/launch_settings.h"

#include <algorithm>
#include <filesystem>
#include <utility>

#include "deepspeed/accelerate/config/deepspeed_fields.h"
#include "deepspeed/accelerate/plugin/python_text.h"
#include "deepspeed/base/error.h"
#include "deepspeed/base/json_file.h"
#include "deepspeed/base/text.h"
#include "deepspeed/config/table/coerce.h"

namespace deepspeed::accelerate {
namespace {

/// Returns a flag's text as the value that Python's argparse makes of it.
Json value_of_flag(const DeepSpeedField& field, const std::string& text) {
  using enum ValueKind;
  if (const auto fault = fault_of(Json(text), field.kind, field.choices))
    raise<UsageError>("--", field.key, ": got ", json_excerpt(Json(text)), ", ", *fault);
  if (text == "auto") return text;
  if (field.kind == kInt || field.kind == kIntOrAuto) return *config::as_int(Json(text));
  if (field.kind == kFloatOrAuto) return *config::as_float(Json(text));
  return text;
}

void take_deepspeed(LaunchSettings& settings, const LaunchFlags& flags, const ClusterConfig* file) {
  const Json none = Json::object();
  const Json& of_file = file ? file->at("deepspeed_config") : none;
  for (const auto& [key, value] : of_file.items()) settings.fields_of_file.push_back(key);
  for (const DeepSpeedField& field : deepspeed_fields()) {
    if (const auto flag = flags.deepspeed.find(field.key); flag != flags.deepspeed.end())
      settings.deepspeed[field.key] = value_of_flag(field, flag->second);
    else if (of_file.contains(field.key) && !of_file[field.key].is_null())
      settings.deepspeed[field.key] = of_file[field.key];
  }
}

void require_nvme_paths(const LaunchSettings& settings) {
  for (const std::string part : {"optimizer", "param"}) {
    const auto device = settings.deepspeed.find("offload_" + part + "_device");
    const std::string path = "offload_" + part + "_nvme_path";
    const bool on_disk =
        device != settings.deepspeed.end() && lowercase(python_str(device->second)) == "nvme";
    if (on_disk && !settings.deepspeed.contains(path) &&
        !settings.deepspeed.contains("deepspeed_config_file"))
      raise<UsageError>("offload_", part, "_device is nvme, and ", path,
                        " is not given: name a folder on the disk");
  }
}

/// Returns the first value that is there.
template <class T>
std::optional<T> first_of(const std::optional<T>& flag, const std::optional<T>& of_file) {
  return flag ? flag : of_file;
}

std::optional<std::string> text_in(const ClusterConfig* file, const char* key) {
  if (!file || file->at(key).is_null()) return {};
  return file->text_of(key);
}

std::optional<int> int_in(const ClusterConfig* file, const char* key) {
  return file ? file->int_of(key) : std::nullopt;
}

}  // namespace

LaunchSettings merge_settings(const LaunchFlags& flags, const ClusterConfig* file, int num_gpus) {
  if (static_cast<int>(flags.cpu) + static_cast<int>(flags.multi_gpu) +
          static_cast<int>(flags.use_deepspeed) >
      1) {
    raise<UsageError>(
        "You can only use one of `--cpu`, `--multi_gpu`, `--tpu`, `--use_deepspeed`, `--use_fsdp` at a "
        "time.");
  }
  if (flags.module && flags.no_python) raise<UsageError>("--module and --no_python cannot be used together");
  LaunchSettings settings;
  const std::string type = file ? file->text_of("distributed_type") : "";
  settings.use_deepspeed = !flags.cpu && (flags.use_deepspeed || (!flags.multi_gpu && type == "DEEPSPEED"));
  settings.use_cpu = flags.cpu || (file && file->flag_of("use_cpu"));
  settings.debug = flags.debug || (file && file->flag_of("debug"));
  settings.quiet = flags.quiet;
  settings.enable_cpu_affinity = flags.enable_cpu_affinity || (file && file->flag_of("enable_cpu_affinity"));
  settings.module = flags.module;
  settings.no_python = flags.no_python;
  settings.threads_per_process = flags.num_cpu_threads_per_process;
  settings.max_restarts = flags.max_restarts;
  settings.log_dir = flags.log_dir.value_or("");
  settings.program = flags.program;
  settings.program_args = flags.program_args;
  settings.gpu_ids = first_of(flags.gpu_ids, text_in(file, "gpu_ids")).value_or("all");
  settings.main_process_ip = first_of(flags.main_process_ip, text_in(file, "main_process_ip")).value_or("");
  settings.main_process_port = first_of(flags.main_process_port, int_in(file, "main_process_port"));
  settings.machine_rank = first_of(flags.machine_rank, int_in(file, "machine_rank")).value_or(0);
  if (settings.main_process_port == 0) settings.main_process_port.reset();

  const auto notice = [&](const std::string& flag, const std::string& value) {
    settings.defaults_taken.push_back("`" + flag + "` was set to a value of `" + value + "`");
  };
  const auto num_machines = first_of(flags.num_machines, int_in(file, "num_machines"));
  if (!num_machines) notice("--num_machines", "1");
  settings.num_machines = num_machines.value_or(1);
  const auto num_processes = first_of(flags.num_processes, int_in(file, "num_processes"));
  settings.num_processes = num_processes.value_or(std::max(num_gpus, 1));
  if (!num_processes) notice("--num_processes", std::to_string(settings.num_processes));
  if (settings.num_processes == -1)
    raise<UsageError>("You need to manually pass in `--num_processes` using this config yaml.");
  if (settings.num_processes < 1 || settings.num_machines < 1 ||
      settings.num_processes % settings.num_machines != 0) {
    raise<UsageError>("--num_processes is ", settings.num_processes, " and --num_machines ",
                      settings.num_machines,
                      ", expected a number of processes that the machines share evenly");
  }
  if (flags.multi_gpu && flags.num_processes && *flags.num_processes < 2)
    raise<UsageError>("You need to use at least 2 processes to use `--multi_gpu`.");

  const auto precision = text_in(file, "mixed_precision");
  settings.mixed_precision = lowercase(first_of(flags.mixed_precision, precision).value_or("no"));
  if (!flags.mixed_precision && !precision && !file) notice("--mixed_precision", "'no'");
  if (settings.use_deepspeed) {
    take_deepspeed(settings, flags, file);
    if (!flags.mixed_precision && precision) settings.fields_of_file.push_back("mixed_precision");
    require_nvme_paths(settings);
  } else if (!flags.deepspeed.empty()) {
    raise<UsageError>("--", flags.deepspeed.begin()->first,
                      " acts with DeepSpeed alone: add --use_deepspeed, or take a ",
                      "config file whose distributed_type is DEEPSPEED");
  } else if (flags.deepspeed.empty() && file &&
             file->at("deepspeed_config").contains("gradient_accumulation_steps")) {
    settings.deepspeed["gradient_accumulation_steps"] =
        file->at("deepspeed_config")["gradient_accumulation_steps"];
  }
  return settings;
}

launcher::Environment launch_variables(const LaunchSettings& settings, const launcher::Environment& own) {
  launcher::Environment variables;
  variables["ACCELERATE_MIXED_PRECISION"] = settings.mixed_precision;
  if (settings.debug) variables["ACCELERATE_DEBUG_MODE"] = "true";
  if (settings.enable_cpu_affinity) variables["ACCELERATE_CPU_AFFINITY"] = "1";
  if (settings.gpu_ids != "all") variables["CUDA_VISIBLE_DEVICES"] = settings.gpu_ids;
  if (settings.threads_per_process)
    variables["OMP_NUM_THREADS"] = std::to_string(*settings.threads_per_process);
  if (settings.use_cpu && !settings.use_deepspeed) variables["ACCELERATE_USE_CPU"] = "true";
  const auto path = own.find("PYTHONPATH");
  const bool has_path = path != own.end() && !path->second.empty();
  variables["PYTHONPATH"] = (has_path ? path->second + ":" : "") + std::filesystem::current_path().string();
  if (settings.use_deepspeed) {
    std::string fields;
    for (const std::string& field : settings.fields_of_file) fields += (fields.empty() ? "" : ",") + field;
    variables["ACCELERATE_CONFIG_DS_FIELDS"] = lowercase(fields);
    variables["ACCELERATE_USE_DEEPSPEED"] = "true";
  }
  for (const DeepSpeedField& field : deepspeed_fields()) {
    const auto value = settings.deepspeed.find(field.key);
    if (!field.variable || value == settings.deepspeed.end()) continue;
    const std::string text = python_str(value->second);
    variables[field.variable] = field.lowered ? lowercase(text) : text;
  }
  return variables;
}

std::vector<std::string> launcher_words(const LaunchSettings& settings) {
  std::vector<std::string> words = {"--no_local_rank"};
  const auto add = [&](std::initializer_list<std::string> more) { words.insert(words.end(), more); };
  const auto text_of = [&](const char* key) {
    const auto value = settings.deepspeed.find(key);
    return value == settings.deepspeed.end() ? "" : python_str(value->second);
  };
  const int of_each = settings.num_processes / settings.num_machines;
  const std::string runner = text_of("deepspeed_multinode_launcher");
  if (settings.num_machines > 1 && (runner == "standard" || (runner.empty() && !settings.use_deepspeed))) {
    // Each machine runs the command, so the machines need no names.
    Json world = Json::object();
    for (int machine = 0; machine < settings.num_machines; ++machine) {
      Json& slots = world["machine-" + std::to_string(machine)] = Json::array();
      for (int slot = 0; slot < of_each; ++slot) slots.push_back(slot);
    }
    if (settings.main_process_ip.empty())
      raise<UsageError>(
          "main_process_ip is not given: with the launcher \"standard\" each machine must know the first "
          "one");
    add({"--world_info", encode_base64(world.dump()), "--no_ssh", "--node_rank",
         std::to_string(settings.machine_rank)});
  } else if (settings.num_machines > 1) {
    const std::string hostfile = text_of("deepspeed_hostfile");
    if (hostfile.empty())
      raise<UsageError>("deepspeed_hostfile is not given: lines `HOST slots=N` name the ",
                        settings.num_machines, " machines");
    add({"--hostfile", hostfile});
    if (runner == "nossh")
      add({"--no_ssh", "--node_rank", std::to_string(settings.machine_rank)});
    else
      add({"--launcher", runner.empty() ? "pdsh" : runner});
    if (const std::string filter = text_of("deepspeed_exclusion_filter"); !filter.empty())
      add({"--exclude", filter});
    else if (const std::string chosen = text_of("deepspeed_inclusion_filter"); !chosen.empty())
      add({"--include", chosen});
    else
      add({"--num_procs", std::to_string(of_each)});
  } else {
    add({"--num_procs", std::to_string(settings.num_processes)});
  }
  if (settings.num_machines > 1 && !settings.main_process_ip.empty())
    add({"--master_addr", settings.main_process_ip});
  if (settings.main_process_port) add({"--master_port", std::to_string(*settings.main_process_port)});
  if (!settings.log_dir.empty()) add({"--enable_each_rank_log", settings.log_dir});
  if (settings.quiet) add({"--quiet"});
  if (settings.module) add({"--module"});
  if (settings.no_python) add({"--no_python"});
  words.push_back(settings.program);
  words.insert(words.end(), settings.program_args.begin(), settings.program_args.end());
  return words;
}

}  // namespace deepspeed::accelerate
