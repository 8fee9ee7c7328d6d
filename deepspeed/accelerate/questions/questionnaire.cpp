// Asks in Accelerate's order. Each answer lands under the key that the file has for it.
#include "deepspeed/accelerate/questions/questionnaire.h"

#include <utility>

#include "deepspeed/base/env.h"
#include "deepspeed/base/error.h"

namespace deepspeed::accelerate {
namespace {

using enum ValueKind;

/// Asks which machines there are, and where the first one is.
void ask_about_machines(Asker& asker, Json& config) {
  config["num_machines"] = asker.ask("num_machines", "How many machines take part?", kInt, 1);
  if (config["num_machines"] > 1) {
    config["machine_rank"] = asker.ask("machine_rank", "Which number has this machine, from 0?", kInt, 0);
    config["main_process_ip"] =
        asker.ask("main_process_ip", "What is the IP address of the machine with rank 0?", kText);
    config["main_process_port"] =
        asker.ask("main_process_port", "At which of its ports do the ranks meet?", kInt);
    config["same_network"] = asker.ask("same_network", "Are all machines in one local network?", kBool, true);
    if (config["same_network"] == false)
      config["rdzv_backend"] =
          asker.ask("rdzv_backend", "Which rendezvous backend is used (static, c10d)?", kText, "static");
  }
  config["debug"] =
      asker.agree("debug", "Check while running that ranks call the same operations? It is slower.");
}

/// Asks where states and parameters are kept, at stage 2 or 3.
void ask_about_offload(Asker& asker, Json& deepspeed) {
  const std::vector<std::string> devices = {"none", "cpu", "nvme"};
  deepspeed["offload_optimizer_device"] =
      asker.choose("offload_optimizer_device", "Where are optimizer states kept?", devices);
  deepspeed["offload_param_device"] =
      asker.choose("offload_param_device", "Where are parameters kept?", devices);
  if (deepspeed["offload_param_device"] == "nvme")
    deepspeed["offload_param_nvme_path"] =
        asker.ask("offload_param_nvme_path", "In which folder are parameters kept?", kText, "/nvme");
  if (deepspeed["offload_optimizer_device"] == "nvme")
    deepspeed["offload_optimizer_nvme_path"] = asker.ask(
        "offload_optimizer_nvme_path", "In which folder are optimizer states kept?", kText, "/nvme");
}

void ask_about_zero(Asker& asker, Json& deepspeed) {
  const std::string stage = asker.choose("zero_stage", "Which ZeRO stage?", {"0", "1", "2", "3"}, 2);
  deepspeed["zero_stage"] = stage[0] - '0';
  if (deepspeed["zero_stage"] >= 2) ask_about_offload(asker, deepspeed);
  deepspeed["gradient_accumulation_steps"] = asker.ask(
      "gradient_accumulation_steps", "How many micro batches make a step in your program?", kInt, 1);
  if (asker.agree("use_gradient_clipping", "Clip gradients?", {"gradient_clipping"}))
    deepspeed["gradient_clipping"] = asker.ask("gradient_clipping", "To which norm?", kFloatOrAuto, 1.0);
  if (deepspeed["zero_stage"] == 3) {
    deepspeed["zero3_save_16bit_model"] =
        asker.agree("zero3_save_16bit_model", "Save whole 16-bit weights at stage 3?");
  }
}

/// Asks how DeepSpeed starts the other machines.
void ask_about_launcher(Asker& asker, Json& deepspeed) {
  deepspeed["deepspeed_multinode_launcher"] =
      asker.choose("deepspeed_multinode_launcher", "What starts the program on the machines?",
                   {"pdsh", "standard", "openmpi", "mvapich", "mpich", "nossh", "slurm"});
  if (deepspeed["deepspeed_multinode_launcher"] == "standard") return;
  deepspeed["deepspeed_hostfile"] =
      asker.ask("deepspeed_hostfile", "Where is the hostfile, with lines `HOST slots=N`?", kText);
  if (asker.agree("use_exclusion_filter", "Leave machines or slots out?", {"deepspeed_exclusion_filter"}))
    deepspeed["deepspeed_exclusion_filter"] =
        asker.ask("deepspeed_exclusion_filter", "Which (HOST:SLOT,...)?", kText);
  if (asker.agree("use_inclusion_filter", "Name the machines or slots to use?",
                  {"deepspeed_inclusion_filter"}))
    deepspeed["deepspeed_inclusion_filter"] =
        asker.ask("deepspeed_inclusion_filter", "Which (HOST:SLOT,...)?", kText);
}

/// Asks about DeepSpeed. Returns whether a config file of its own is used.
bool ask_about_deepspeed(Asker& asker, Json& config) {
  config["distributed_type"] = "DEEPSPEED";
  Json& deepspeed = config["deepspeed_config"] = Json::object();
  const bool has_file = asker.agree("use_deepspeed_config", "Do you have a DeepSpeed config, a JSON file?",
                                    {"deepspeed_config_file"});
  if (has_file)
    deepspeed["deepspeed_config_file"] = asker.ask("deepspeed_config_file", "Where is it?", kText, "none");
  else
    ask_about_zero(asker, deepspeed);
  deepspeed["zero3_init_flag"] =
      asker.agree("zero3_init_flag", "Construct large models under zero::Init at stage 3?");
  if (asker.agree("use_moe", "Train a mixture of experts?", {"deepspeed_moe_layer_cls_names"})) {
    deepspeed["deepspeed_moe_layer_cls_names"] = asker.ask(
        "deepspeed_moe_layer_cls_names", "Which classes are its layers, separated by commas?", kText);
  }
  if (config["num_machines"] > 1) ask_about_launcher(asker, deepspeed);
  return has_file;
}

}  // namespace

ClusterConfig ask_for_config(Asker& asker) {
  const std::vector<std::string> of_deepspeed = {"deepspeed_config_file", "zero_stage",
                                                 "offload_optimizer_device", "offload_param_device",
                                                 "gradient_accumulation_steps"};
  Json config = {{"compute_environment", "LOCAL_MACHINE"},
                 {"num_machines", 1},
                 {"machine_rank", 0},
                 {"rdzv_backend", "static"},
                 {"same_network", true},
                 {"downcast_bf16", "no"},
                 {"main_training_function", "main"},
                 {"debug", false}};
  const std::string environment =
      asker.choose("compute_environment", "In which compute environment are you running?", {"This machine"});
  const std::string type = asker.choose("distributed_type", "Which type of machine are you using?",
                                        {"No distributed training", "multi-CPU", "multi-GPU"});
  const bool single = type == "No distributed training";
  config["distributed_type"] = single ? "NO" : type == "multi-CPU" ? "MULTI_CPU" : "MULTI_GPU";
  if (!single) ask_about_machines(asker, config);
  config["use_cpu"] =
      type == "multi-CPU" || (single && asker.agree("use_cpu", "Run on the CPU, even if there is a GPU?"));
  bool has_file = false;
  if (type != "multi-CPU" && asker.agree("use_deepspeed", "Use DeepSpeed?", of_deepspeed))
    has_file = ask_about_deepspeed(asker, config);
  config["num_processes"] = 1;
  if (!single || config["distributed_type"] == "DEEPSPEED")
    config["num_processes"] =
        asker.ask("num_processes", "How many processes, of all machines together?", kInt, 1);
  if (config["distributed_type"] == "MULTI_GPU" && config["num_machines"] == 1 &&
      config["num_processes"] == 1) {
    raise<ConfigError>("num_processes: one process on one machine is no distributed training: answer ",
                       "\"No distributed training\" for the type of machine");
  }
  const bool plain_gpu = config["distributed_type"] != "DEEPSPEED" && config["use_cpu"] == false;
  if (plain_gpu) {
    config["gpu_ids"] = asker.ask("gpu_ids", "Which GPUs of this machine, separated by commas?", kAny, "all");
    config["enable_cpu_affinity"] =
        asker.agree("enable_cpu_affinity", "Bind processes to cores near their GPU?");
  }
  if (!has_file)
    config["mixed_precision"] =
        asker.choose("mixed_precision", "Which mixed precision?", {"no", "fp16", "bf16"});
  asker.require_all_taken();
  return ClusterConfig(YamlDocument{std::move(config), "the answers", {}});
}

ClusterConfig config_of_this_machine(const std::string& mixed_precision, int num_gpus) {
  const Json config = {{"compute_environment", "LOCAL_MACHINE"},
                       {"distributed_type", num_gpus > 1 ? "MULTI_GPU" : "NO"},
                       {"mixed_precision", mixed_precision},
                       {"num_processes", num_gpus > 0 ? num_gpus : 1},
                       {"use_cpu", num_gpus == 0}};
  return ClusterConfig(YamlDocument{config, "the default config", {}});
}

}  // namespace deepspeed::accelerate
