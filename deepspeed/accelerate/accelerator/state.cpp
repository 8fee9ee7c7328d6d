// Makes the state once a process: plugins first, since they may be refused, then the ranks, then the device.
#include "deepspeed/accelerate/accelerator/state.h"

#include <algorithm>
#include <ostream>

#include "deepspeed/accelerate/plugin/python_text.h"
#include "deepspeed/base/env.h"
#include "deepspeed/base/error.h"
#include "deepspeed/base/text.h"
#include "deepspeed/config/table/coerce.h"

namespace deepspeed::accelerate {
namespace {

bool flag_in_environment(const char* name) {
  const auto text = env::get(name);
  return text && config::as_bool(Json(*text)).value_or(false);
}

/// Throws if the environment asks for ranks that divide a model or its sequences.
void refuse_other_parallelism() {
  if (!flag_in_environment("ACCELERATE_USE_PARALLELISM_CONFIG")) return;
  for (const char* part : {"DP_REPLICATE_SIZE", "DP_SHARD_SIZE", "TP_SIZE", "CP_SIZE", "SP_SIZE"}) {
    const std::string name = std::string("PARALLELISM_CONFIG_") + part;
    const auto size = env::get_int(name.c_str());
    if (!size || *size == 1) continue;
    raise<NotSupportedError>(name, " is ", *size,
                             ", which this version lacks: unset it; the ranks then divide the data, and ",
                             "ZeRO divides the model");
  }
}

std::string precision_of(const std::optional<std::string>& given) {
  const std::string precision =
      lowercase(given ? *given : env::get("ACCELERATE_MIXED_PRECISION").value_or("no"));
  if (precision == "no" || precision == "fp16" || precision == "bf16") return precision;
  if (precision == "fp8")
    raise<NotSupportedError>("mixed_precision is fp8, which this version lacks: use bf16");
  raise<UsageError>("Unknown mixed_precision mode: ", precision,
                    ". Choose between ['no', 'fp16', 'bf16', 'fp8'].");
}

}  // namespace

std::string name_of(DistributedType type) {
  switch (type) {
    case DistributedType::kMultiCpu:
      return "MULTI_CPU";
    case DistributedType::kMultiGpu:
      return "MULTI_GPU";
    case DistributedType::kDeepSpeed:
      return "DEEPSPEED";
    default:
      return "NO";
  }
}

struct AcceleratorState::Shared {
  comm::World world;
  DistributedType type = DistributedType::kNo;
  std::string backend;
  at::Device device = at::kCPU;
  std::string mixed_precision;
  NamedPlugins plugins;
  size_t selected = 0;
};

std::shared_ptr<AcceleratorState::Shared>& AcceleratorState::current() {
  static std::shared_ptr<Shared> shared;
  return shared;
}

AcceleratorState::AcceleratorState() : shared_(current()) {
  if (shared_) return;
  raise<UsageError>(
      "Please make sure to properly initialize your accelerator via `accelerator = Accelerator()` before "
      "using any ",
      "functionality from the `accelerate` library.");
}

bool AcceleratorState::is_initialized() { return current() != nullptr; }

void AcceleratorState::reset() { current().reset(); }

AcceleratorState AcceleratorState::make(const std::optional<std::string>& mixed_precision, bool cpu,
                                        NamedPlugins plugins) {
  if (auto& shared = current()) {
    if (!plugins.empty() && shared->type == DistributedType::kDeepSpeed) {
      raise<NotSupportedError>(
          "You cannot pass in a `deepspeed_plugin` when creating a second `Accelerator`. Please make sure "
          "the ",
          "first `Accelerator` is initialized with all the plugins you want to use.");
    }
    const std::string restart =
        "AcceleratorState has already been initialized and cannot be changed, restart your runtime "
        "completely and pass `";
    if (cpu && !shared->device.is_cpu()) raise<UsageError>(restart, "cpu=True` to `Accelerator()`.");
    const bool differs = mixed_precision && lowercase(*mixed_precision) != shared->mixed_precision;
    if (differs && shared->type != DistributedType::kDeepSpeed)
      raise<UsageError>(restart, "mixed_precision='", *mixed_precision, "'` to `Accelerator()`.");
    return AcceleratorState(shared);
  }
  refuse_other_parallelism();
  cpu = cpu || flag_in_environment("ACCELERATE_USE_CPU");
  const bool from_environment = flag_in_environment("ACCELERATE_USE_DEEPSPEED") && !cpu;
  const std::string precision = precision_of(mixed_precision);
  if (plugins.empty() && from_environment) plugins = {{"", std::make_shared<DeepSpeedPlugin>()}};
  for (const auto& [name, plugin] : plugins) plugin->set_mixed_precision(precision);

  auto shared = std::make_shared<Shared>();
  if (cpu) env::set("DS_ACCELERATOR", "cpu");
  shared->world = comm::init_distributed();
  const comm::World& world = shared->world;
  const bool on_gpu = world.group().device_type() == at::kCUDA;
  shared->device =
      on_gpu ? at::Device(at::kCUDA, static_cast<at::DeviceIndex>(world.local_rank())) : at::Device(at::kCPU);
  const bool has_ranks = world.size() > 1 || env::get("RANK");
  if (has_ranks) shared->backend = on_gpu ? "nccl" : "gloo";
  shared->type = !plugins.empty()    ? DistributedType::kDeepSpeed
                 : world.size() == 1 ? DistributedType::kNo
                 : on_gpu            ? DistributedType::kMultiGpu
                                     : DistributedType::kMultiCpu;
  shared->mixed_precision = precision;
  shared->plugins = std::move(plugins);
  current() = shared;
  return AcceleratorState(shared);
}

const comm::World& AcceleratorState::world() const { return shared_->world; }
DistributedType AcceleratorState::distributed_type() const { return shared_->type; }
const std::string& AcceleratorState::backend() const { return shared_->backend; }
at::Device AcceleratorState::device() const { return shared_->device; }
int AcceleratorState::num_processes() const { return shared_->world.size(); }
int AcceleratorState::process_index() const { return shared_->world.rank(); }
int AcceleratorState::local_process_index() const { return shared_->world.local_rank(); }

std::string AcceleratorState::mixed_precision() const {
  return deepspeed_plugin() ? deepspeed_plugin()->mixed_precision() : shared_->mixed_precision;
}

const PluginPtr& AcceleratorState::deepspeed_plugin() const {
  static const PluginPtr none;
  return shared_->plugins.empty() ? none : shared_->plugins[shared_->selected].second;
}

const NamedPlugins& AcceleratorState::deepspeed_plugins() const { return shared_->plugins; }

const PluginPtr& AcceleratorState::get_deepspeed_plugin(const std::string& name) const {
  for (const auto& [its_name, plugin] : shared_->plugins) {
    if (its_name == name) return plugin;
  }
  std::string names;
  for (const auto& [its_name, plugin] : shared_->plugins)
    names += (names.empty() ? "" : ", ") + python_repr(its_name);
  raise<UsageError>("no plugin has the name ", python_repr(name), ", expected one of ", names);
}

void AcceleratorState::select_deepspeed_plugin(const std::string& name) {
  const PluginPtr& wanted = get_deepspeed_plugin(name);
  const auto place = std::find_if(shared_->plugins.begin(), shared_->plugins.end(),
                                  [&](const auto& entry) { return entry.second == wanted; });
  shared_->selected = static_cast<size_t>(place - shared_->plugins.begin());
}

std::string AcceleratorState::to_string() const {
  std::string text = "Distributed environment: " + name_of(distributed_type());
  if (!backend().empty()) text += "  Backend: " + backend();
  text += message("\nNum processes: ", num_processes(), "\nProcess index: ", process_index(),
                  "\nLocal process index: ", local_process_index(), "\nDevice: ", device().str(),
                  "\n\nMixed precision type: ", mixed_precision(), "\n");
  if (deepspeed_plugin()) text += "ds_config: " + python_repr(deepspeed_plugin()->deepspeed_config()) + "\n";
  return text;
}

std::ostream& operator<<(std::ostream& out, const AcceleratorState& state) {
  return out << state.to_string();
}

}  // namespace deepspeed::accelerate
