// DeepSpeed's zero.Init: partitions a model's parameters while it is built, so that no rank ever holds the
// whole model.
//
//     std::shared_ptr<GPT> model;
//     {
//       const deepspeed::zero::Init init({.config_dict_or_path = "ds_config.json"});
//       model = std::make_shared<GPT>(sizes);
//     }
//     auto [engine, ...] = deepspeed::initialize(model, {.config = "ds_config.json"});
//
// All ranks run the same constructors. The parameters get rank 0's values, whatever the other ranks' seeds.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <c10/core/ScalarType.h>

#include "deepspeed/base/export.h"
#include "deepspeed/base/unwinding.h"
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

/// Holds the arguments of DeepSpeed's zero.Init. The members `parameters`, `world`, max_whole_bytes and
/// stays_whole are additions.
struct InitArguments {
  /// A model that exists already. Its parameters are partitioned at once; tensors built later are not.
  /// Parameters on the meta device get shards full of NaN on the rank's device. Fill them by load_weights(),
  /// by load_module_state_dict() or under GatheredParameters.
  std::shared_ptr<torch::nn::Module> module = nullptr;
  /// Like `module`, for a model that is no torch::nn::Module: lists its parameters, each once.
  std::vector<NamedTensor> parameters = {};
  /// Ranks over which parameters are partitioned. All of them get the first rank's values. Default: the ranks
  /// of `mpu`, or all ranks without one.
  comm::ProcessGroup data_parallel_group = {};
  bool mem_efficient_linear = true;  // no effect: backward gathers what it needs
  /// Where shards are kept once a parameter is partitioned. "none" is the rank's device, "cpu" is host
  /// memory, and "nvme" is the disk of offload_param.nvme_path, apart from what max_in_cpu and aio.block_size
  /// keep in host memory. "none" is replaced by the config's offload_param.device. initialize() moves the
  /// shards to where its own config puts them.
  std::string remote_device = "none";
  /// Asks for page-locked host memory if the shards are not on the rank's device. The config's
  /// offload_param.pin_memory does the same.
  bool pin_memory = false;
  /// Gives defaults for dtype and remote_device, and limits what is whole before initialize(). Its
  /// mics_shard_size says over how many ranks parameters are partitioned. Its stage must be 3.
  std::optional<config::ConfigSource> config_dict_or_path = {};
  bool enabled = true;  // false: does nothing
  /// Dtype of the shards, and of the parameters at the end: float32, float16 or bfloat16. By default the
  /// config decides: float32 unless fp16 or bf16 is enabled. Without a config each parameter keeps its dtype.
  /// Until the end, whole parameters keep the dtype in which they were built, so initialisers draw the same
  /// random numbers as without zero::Init.
  std::optional<at::ScalarType> dtype = {};
  /// Set if the program itself splits the model across ranks (comm/mpu.h). initialize() must get the same
  /// mpu. Each rank's slices of the model keep their own values.
  std::shared_ptr<Mpu> mpu = nullptr;
  comm::ProcessGroup zero_param_parallel_group = {};
  // The next two act as the config's keys of the same names, until initialize().
  bool zero_quantized_weights = false;
  bool zero_quantized_nontrainable_weights = false;
  comm::ProcessGroup sequence_data_parallel_group = {};  // the older name of data_parallel_group
  comm::World world = {};                                // default: init_distributed()
  /// Bytes of parameters kept whole on each rank while the model is built. The newest tensor does not count.
  int64_t max_whole_bytes = 64 << 20;
  /// Returns whether a parameter stays whole until initialize(). An example is a slice of a layer, if the
  /// group's other ranks hold other slices. The function is called when the parameter would be partitioned.
  /// Null: no parameter stays whole.
  std::function<bool(const at::Tensor&)> stays_whole = nullptr;
};

/// Partitions the parameters built on this thread, for as long as it exists.
///
/// - Parameters are dense leaf tensors in float32, float16 or bfloat16 that require a gradient. The oldest
///   are partitioned first, once more than max_whole_bytes of parameters are whole. Buffers and other tensors
///   stay whole, as do parameters whose memory another tensor shares (view(), detach()). Parameters
///   registered without a gradient stay whole until initialize() or close(model) partitions them.
/// - Constructors may use and change any tensor at any time. An operator gathers what it needs and writes
///   back what it changes. Only a pointer into a parameter must be taken again after other tensors were made.
///   Inside GatheredParameters it stays valid.
/// - A tensor that only looks like a parameter keeps its values. It is partitioned at the end unless
///   close(model) tells which parameters the model has.
/// - Other threads must not use what is being built. What they build themselves is not partitioned.
/// - A second Init on the same thread is part of the first. If an exception ends it, what was built is
///   unusable, and no rank waits for another.
class DEEPSPEED_API Init {
 public:
  /// Starts partitioning. Collective. Throws ConfigError if the config's stage is not 3, or if remote_device
  /// is "nvme" and no config names a disk. Throws NotSupportedError for arguments that are not supported yet.
  /// Throws UsageError if arguments contradict each other, the config or an outer zero::Init. Throws IoError
  /// on all ranks if one of them cannot create its file on the disk.
  explicit Init(InitArguments arguments = {});
  /// Calls close(), unless an exception is unwinding.
  ~Init() noexcept(false);
  Init(const Init&) = delete;
  Init& operator=(const Init&) = delete;

  /// Ends the construction and partitions all parameters. Until initialize() takes them over, an operator
  /// that reads parameters gathers them, so all ranks must run the same operators. Writing needs
  /// GatheredParameters. A second call does nothing. Collective. Throws UsageError on another thread and
  /// inside a GatheredParameters. Throws CommError.
  void close();
  /// Ends the construction of a complete model. Partitions exactly its parameters, also those without a
  /// gradient, and uses their names in errors. Throws as close() does, and UsageError if two share memory.
  void close(const torch::nn::Module& model);
  /// Ends the construction of a model that is no torch::nn::Module. params: its parameters, each once.
  void close(const std::vector<NamedTensor>& params);
  /// Ends the construction as an exception would, without communication. What was built is unusable.
  void forget() noexcept;

 private:
  void start(const InitArguments& arguments);
  /// Ends the construction. params: the complete model's parameters; null: guesses them from the tensors
  /// built.
  void finish(const std::vector<NamedTensor>* params);

  std::shared_ptr<Construction> construction_;  // null: it is disabled or has ended
  std::unique_ptr<ConstructionMode> mode_;
  Unwinding unwinding_;
};

/// DeepSpeed's MiCS_Init: a zero::Init whose config must set mics_shard_size. zero::Init accepts such a
/// config too.
class DEEPSPEED_API MiCSInit : public Init {
 public:
  /// Starts partitioning. Collective. Throws as Init does. Also throws ConfigError without a
  /// config_dict_or_path, and if its zero_optimization.mics_shard_size is below 1.
  explicit MiCSInit(InitArguments arguments);

 private:
  static InitArguments checked(InitArguments arguments);
};

}  // namespace deepspeed::zero
