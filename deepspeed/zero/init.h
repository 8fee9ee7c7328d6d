// DeepSpeed's zero.Init: models whose parameters are partitioned while they are built, so that no rank ever
// holds one as a whole.
//
//     std::shared_ptr<GPT> model;
//     {
//       const deepspeed::zero::Init init({.config_dict_or_path = "ds_config.json"});
//       model = std::make_shared<GPT>(sizes);
//     }
//     auto [engine, ...] = deepspeed::initialize(model, {.config = "ds_config.json"});
//
// All ranks run the same constructors. Their parameters get rank 0's values, whatever the seeds of the
// others.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <c10/core/ScalarType.h>

#include "deepspeed/base/export.h"
#include "deepspeed/comm/init.h"
#include "deepspeed/config/table/source.h"
#include "deepspeed/tensor/named_tensor.h"

namespace torch::nn {
class Module;
}

namespace deepspeed {
class Mpu;
}

namespace deepspeed::zero {

class Construction;
class ConstructionMode;

/// DeepSpeed's arguments, and max_whole_bytes.
struct InitArguments {
  /// A model that is built already: its parameters are partitioned at once, and nothing that is built later
  /// is. Those on the meta device get shards full of NaN on the rank's device, to be filled: by
  /// load_weights(), load_module_state_dict() or under GatheredParameters.
  std::shared_ptr<torch::nn::Module> module = nullptr;
  /// The same of a model that is no torch::nn::Module: its parameters, each once.
  std::vector<NamedTensor> parameters = {};
  /// Ranks over which parameters are partitioned, whose first one's values they get. Default: those of `mpu`,
  /// else all.
  comm::ProcessGroup data_parallel_group = {};
  bool mem_efficient_linear = true;  // nothing to do: backward gathers what it needs
  /// Where the shards wait from the moment on at which a parameter is partitioned: "none" on the rank's
  /// device, "cpu" in the host's memory, "nvme" on the disk of offload_param.nvme_path, except for what its
  /// max_in_cpu and aio.block_size leave in the host's memory. "none" becomes the config's
  /// offload_param.device. initialize() moves the shards to where its own config wants them.
  std::string remote_device = "none";
  /// Page-locked host memory, where the device is none that it belongs to; or the config's
  /// offload_param.pin_memory.
  bool pin_memory = false;
  /// Gives dtype and remote_device, where they are left out, the limits of what is whole before initialize(),
  /// and mics_shard_size, over how many ranks parameters are partitioned. Its stage must be 3.
  std::optional<config::ConfigSource> config_dict_or_path = {};
  bool enabled = true;  // false: nothing happens
  /// Parameters have it at the end, and shards from the start; it is float32, float16 or bfloat16. Where it
  /// is left out it is that of the config, which is float32 without fp16 and bf16; without a config that of
  /// each parameter. Until the end what is whole is of the type that it was built in, so that initialisers
  /// draw the same numbers as without zero::Init.
  std::optional<at::ScalarType> dtype = {};
  /// The program shares the model out itself (comm/mpu.h), and initialize() gets the same mpu: slices keep
  /// their own values.
  std::shared_ptr<Mpu> mpu = nullptr;
  comm::ProcessGroup zero_param_parallel_group = {};
  // As the config's keys, for passes before initialize().
  bool zero_quantized_weights = false;
  bool zero_quantized_nontrainable_weights = false;
  comm::ProcessGroup sequence_data_parallel_group = {};  // the older name of data_parallel_group
  comm::World world = {};                                // default: init_distributed()
  /// Bytes of parameters that stand whole on each rank while the model is built, beside the newest tensor.
  int64_t max_whole_bytes = 64 << 20;
  /// Says of a parameter that it stays whole until initialize(): of a part of a layer, of which other ranks
  /// of the group have others. Is asked where the parameter would be partitioned; null: of none.
  std::function<bool(const at::Tensor&)> stays_whole = nullptr;
};

/// While it lives, what is built on this thread is born partitioned:
///
/// - Partitioned are parameters: dense leaves in float32, float16 or bfloat16 that require a gradient, the
///   oldest first, as soon as more than max_whole_bytes of them are whole. Buffers, other tensors, and
///   parameters whose memory a second tensor sees (a view, detach()), stay whole; so do parameters that are
///   registered without a gradient, until initialize() or close(model) partitions them.
/// - Constructors may use and change any of it at any time: an operator gathers what it needs, and what it
///   writes is written back. Only a pointer into a parameter must be taken anew after other tensors were
///   made; inside GatheredParameters it stays.
/// - A tensor that only looks like a parameter keeps its values, and is partitioned at the end unless
///   close(model) is told what the model is.
/// - Another thread must not use what is being built; what it builds itself is not partitioned.
/// - A second one on the same thread is a part of the first. Where an exception ends it, what was built is of
///   no use; no other rank is waited for.
class DEEPSPEED_API Init {
 public:
  /// Collective. Throws ConfigError for another stage than 3 and for "nvme" without a disk, NotSupportedError
  /// for what does not exist yet, UsageError for arguments that contradict each other, the config or an outer
  /// zero::Init; IoError, on all ranks, where one has no disk.
  explicit Init(InitArguments arguments = {});
  /// close(), unless an exception unwinds.
  ~Init() noexcept(false);
  Init(const Init&) = delete;
  Init& operator=(const Init&) = delete;

  /// Ends it: all parameters are partitioned. Until initialize() takes them over, an operator that reads some
  /// gathers them, so all ranks call it; writes are for GatheredParameters. A second call does nothing.
  /// Collective. Throws UsageError on another thread and inside of a GatheredParameters; CommError.
  void close();
  /// The same where the model is complete: exactly its parameters are partitioned, those without a gradient
  /// too, and errors call them by their names.
  void close(const torch::nn::Module& model);
  /// The same of a model that is no torch::nn::Module, whose parameters these are, each once.
  void close(const std::vector<NamedTensor>& params);

 private:
  void start(const InitArguments& arguments);
  /// params: of the complete model; null: what was built is told from its looks.
  void finish(const std::vector<NamedTensor>* params);

  std::shared_ptr<Construction> construction_;  // null: it does nothing, or no more
  std::unique_ptr<ConstructionMode> mode_;
  int exceptions_ = 0;  // that were under way at its begin
};

/// DeepSpeed's MiCS_Init: a zero::Init whose config must say over how many ranks parameters are partitioned.
/// zero::Init does the same where it gets such a config.
class DEEPSPEED_API MiCSInit : public Init {
 public:
  /// Collective. Throws as Init, and ConfigError without a config_dict_or_path, or where its
  /// zero_optimization.mics_shard_size is below 1.
  explicit MiCSInit(InitArguments arguments);

 private:
  static InitArguments checked(InitArguments arguments);
};

}  // namespace deepspeed::zero
