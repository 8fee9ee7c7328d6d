// What zero::Init decides before a Construction partitions parameters.
//
// 1. check_arguments() refuses arguments that contradict each other.
// 2. start() takes ranks, dtype and limits from the arguments and the config, and the offload from both
//    (set_offload). A scope inside another one must agree with it, and adds nothing.
// 3. The outermost scope makes the Construction, and the mode that partitions parameters as constructors make
//    them. If a model or parameters were given, finish() partitions those at once instead.
// 4. finish() ends the mode, and the Construction gives all parameters to a GatherPool.
#include "deepspeed/zero/init.h"

#include <exception>
#include <utility>

#include "deepspeed/base/error.h"
#include "deepspeed/comm/mpu.h"
#include "deepspeed/config/config.h"
#include "deepspeed/device/accelerator/current_device.h"
#include "deepspeed/zero/construction/construction.h"
#include "deepspeed/zero/construction/construction_mode.h"
#include "deepspeed/zero/layout/rank_sharing.h"
#include "deepspeed/zero/params/memory_overlap.h"
#include "deepspeed/zero/params/named_parameters.h"
#include "deepspeed/zero/shards/shard_home_options.h"

namespace deepspeed::zero {
namespace {

void refuse(bool is_asked, const char* argument, const char* way_out) {
  if (is_asked) raise<NotSupportedError>(argument, " does not exist yet; ", way_out);
}

void check_arguments(const InitArguments& arguments) {
  refuse(static_cast<bool>(arguments.zero_param_parallel_group),
         "zero_param_parallel_group: a second partition of the caller's own ranks",
         "set zero_hpz_partition_size in the config of initialize()");
  if (arguments.data_parallel_group && arguments.sequence_data_parallel_group) {
    raise<UsageError>(
        "got both data_parallel_group and sequence_data_parallel_group, its older name; pass the first");
  }
  if (arguments.max_whole_bytes < 0) {
    raise<UsageError>("max_whole_bytes: got ", arguments.max_whole_bytes, ", expected 0 or more");
  }
  const std::string& remote = arguments.remote_device;
  if (remote != "none" && remote != "cpu" && remote != "nvme") {
    raise<UsageError>("remote_device: got \"", remote, "\", expected \"none\", \"cpu\" or \"nvme\"");
  }
  const auto dtype = arguments.dtype.value_or(at::kFloat);
  if (dtype != at::kFloat && dtype != at::kHalf && dtype != at::kBFloat16) {
    raise<UsageError>("dtype: got ", dtype, ", expected Float, Half or BFloat16");
  }
}

comm::World world_of(const InitArguments& arguments) {
  return arguments.world ? arguments.world : comm::init_distributed();
}

comm::ProcessGroup group_of(const InitArguments& arguments) {
  if (arguments.data_parallel_group) return arguments.data_parallel_group;
  if (arguments.sequence_data_parallel_group) return arguments.sequence_data_parallel_group;
  if (arguments.mpu) return arguments.mpu->get_data_parallel_group();
  return world_of(arguments).group();
}

/// Returns the groups over which parameters are partitioned until initialize() makes the engine's own groups.
ZeroGroups ranks_of(const InitArguments& arguments, const comm::ProcessGroup& group,
                    const config::ZeroConfig& config) {
  RankSharing sharing = rank_sharing(config, group.size());
  sharing.secondary_size = 0;
  sharing.by_nodes = config.mics_hierarchical_params_gather;
  const bool is_plain = sharing.num_shards == group.size() || sharing.num_shards == 0;
  if (is_plain && !sharing.by_nodes) return ZeroGroups(group);
  return make_zero_groups(world_of(arguments), group, sharing, "zero.Init");
}

at::Device device_of(const comm::ProcessGroup& group) {
  if (group.device_type() == at::kCPU) return at::kCPU;
  return {at::kCUDA, static_cast<c10::DeviceIndex>(device::current_cuda_device())};
}

at::ScalarType dtype_of(const config::DeepSpeedConfig& config) {
  if (config.fp16.enabled) return at::kHalf;
  return config.bf16.enabled ? at::kBFloat16 : at::kFloat;
}

/// Completes the config's offload settings with those of the arguments.
void set_offload(config::DeepSpeedConfig& config, const InitArguments& arguments, int num_ranks) {
  config::OffloadParamConfig& offload = config.zero_optimization.offload_param;
  const std::string& remote = arguments.remote_device;
  if (offload.device != "none" && remote != "none" && offload.device != remote) {
    raise<UsageError>("remote_device: got \"", remote, "\", and zero_optimization.offload_param.device is \"",
                      offload.device, "\"; leave one of them out");
  }
  if (offload.device == "none") {
    offload.device = remote;
    offload.pin_memory = false;
  }
  offload.pin_memory = offload.pin_memory || arguments.pin_memory;
  if (offload.device == "none" && arguments.pin_memory) {
    raise<UsageError>("pin_memory: got true without a remote_device, expected \"cpu\" or \"nvme\" with it");
  }
  if (remote == "nvme" && !arguments.config_dict_or_path) {
    raise<ConfigError>(
        "remote_device: got \"nvme\" without config_dict_or_path, whose "
        "zero_optimization.offload_param.nvme_path says where the disk is");
  }
  if (remote == "nvme") config::require_consistent(config, num_ranks);
}

}  // namespace

Init::Init(InitArguments arguments) {
  if (!arguments.enabled) return;
  check_arguments(arguments);
  if (arguments.module) {
    if (!arguments.parameters.empty()) raise<UsageError>("got module and parameters; expected one of them");
    arguments.parameters = named_parameters(*arguments.module);
  }
  start(arguments);
  if (!arguments.parameters.empty() && construction_) finish(&arguments.parameters);
}

void Init::start(const InitArguments& arguments) {
  const comm::ProcessGroup group = group_of(arguments);
  ConstructionOptions options{
      .dtype = arguments.dtype, .device = device_of(group), .max_whole_bytes = arguments.max_whole_bytes};
  options.stays_whole = arguments.stays_whole;
  config::DeepSpeedConfig config;
  if (arguments.config_dict_or_path) {
    config = config::load_config(*arguments.config_dict_or_path, group.size());
    if (config.zero_optimization.stage != 3) {
      raise<ConfigError>("zero_optimization.stage: got ", config.zero_optimization.stage,
                         ", expected 3 when a model is built under zero::Init; pass enabled = false to build "
                         "it whole");
    }
    if (!options.dtype) options.dtype = dtype_of(config);
    options.pool.keys = config.zero_optimization;
  }
  config::ParamGatherConfig& keys = options.pool.keys;
  keys.zero_quantized_weights = keys.zero_quantized_weights || arguments.zero_quantized_weights;
  keys.zero_quantized_nontrainable_weights =
      keys.zero_quantized_nontrainable_weights || arguments.zero_quantized_nontrainable_weights;
  set_offload(config, arguments, group.size());
  const Construction* const outer = current_construction();
  const bool names_none = !arguments.dtype && options.dtype.value_or(at::kFloat) == at::kFloat;
  if (outer != nullptr && names_none && outer->options().dtype.value_or(at::kFloat) == at::kFloat)
    options.dtype = outer->options().dtype;  // of two scopes, one without a config
  options.home =
      shard_home_options(config, options.dtype.value_or(at::kFloat), group.rank(), options.device.is_cuda());
  if (outer == nullptr) {
    construction_ =
        std::make_shared<Construction>(ranks_of(arguments, group, config.zero_optimization), options);
    if (arguments.parameters.empty()) mode_ = std::make_unique<ConstructionMode>(construction_);
    return;
  }
  if (!arguments.parameters.empty()) {
    raise<UsageError>("module: the model is passed inside another zero::Init; end that first");
  }
  const int num_shards = arguments.config_dict_or_path ? config.zero_optimization.num_shards(group.size())
                                                       : outer->ranks().shard.size();
  if (outer->options().dtype != options.dtype || outer->options().home.place != options.home.place ||
      outer->ranks().data.global_ranks() != group.global_ranks() ||
      outer->ranks().shard.size() != num_shards) {
    raise<UsageError>(
        "another zero::Init is active on this thread, with another dtype, remote_device, mics_shard_size or "
        "other ranks; end it first, or pass the same values");
  }
}

MiCSInit::MiCSInit(InitArguments arguments) : Init(checked(std::move(arguments))) {}

InitArguments MiCSInit::checked(InitArguments arguments) {
  if (!arguments.enabled) return arguments;
  if (!arguments.config_dict_or_path) {
    raise<ConfigError>(
        "zero::MiCSInit needs config_dict_or_path, whose zero_optimization.mics_shard_size says over how "
        "many ranks parameters are partitioned; pass it, or use zero::Init");
  }
  const comm::ProcessGroup group = group_of(arguments);
  const auto config = config::load_config(*arguments.config_dict_or_path, group.size());
  if (config.zero_optimization.mics_shard_size <= 0) {
    raise<ConfigError>("zero_optimization.mics_shard_size: got ", config.zero_optimization.mics_shard_size,
                       ", expected a divisor of ", group.size(),
                       ", the number of data-parallel ranks, when a model is built under zero::MiCSInit; set "
                       "it, or use zero::Init");
  }
  return arguments;
}

Init::~Init() noexcept(false) {
  if (!unwinding_.is_under_way()) close();
}

void Init::close() { finish(nullptr); }

void Init::forget() noexcept {
  mode_.reset();
  construction_.reset();
}

void Init::close(const torch::nn::Module& model) {
  const std::vector<NamedTensor> params = named_parameters(model);
  finish(&params);
}

void Init::close(const std::vector<NamedTensor>& params) { finish(&params); }

void Init::finish(const std::vector<NamedTensor>* params) {
  if (!construction_) return;
  if (!construction_->is_of_this_thread()) {
    raise<UsageError>("it ends on another thread than the one that made it");
  }
  mode_.reset();
  const auto construction = std::exchange(construction_, nullptr);
  if (params == nullptr) return construction->hand_over();
  MemoryOverlap overlap;
  for (const NamedTensor& param : *params) overlap.add(param);
  construction->hand_over(*params);
}

}  // namespace deepspeed::zero
