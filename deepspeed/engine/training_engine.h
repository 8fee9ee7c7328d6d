// What every engine has, however its steps are driven: it holds the training, tells what happened, changes
// settings, saves and loads. It composes the parts below it (ZeRO optimizer, schedule, loss scaler, groups of
// ranks, checkpoints) and implements none of them. Method names and meanings are DeepSpeed's.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>

#include "deepspeed/base/export.h"
#include "deepspeed/config/config.h"
#include "deepspeed/engine/saving/checkpoint_options.h"
#include "deepspeed/engine/step/training_options.h"
#include "deepspeed/tensor/named_tensor.h"
#include "deepspeed/zero/memory_bytes.h"

namespace deepspeed {

namespace comm {
class ProcessGroup;
class World;
}  // namespace comm
namespace optim {
class LrScheduler;
class LrSchedulerSource;
}  // namespace optim
namespace monitor {
class MonitorMaster;
}
namespace profile {
class Throughput;
}
namespace zero {
class ParkedStorages;
class ZeroOptimizer;
}  // namespace zero

class PreemptionWatch;
class StepDriver;
struct DataLoaderOptions;
struct DeepSpeedIoOptions;
struct EngineModel;
struct EngineParts;
struct LoaderPosition;
struct TrainingState;

class DEEPSPEED_API TrainingEngine {
 public:
  /// Talks to no rank. At stage 3 the model stays partitioned: zero::make_whole(), or initialize(), goes on
  /// with it.
  virtual ~TrainingEngine();
  TrainingEngine(const TrainingEngine&) = delete;
  TrainingEngine& operator=(const TrainingEngine&) = delete;

  // --- training ---

  void zero_grad();
  void train(bool mode = true);
  void eval() { train(false); }

  /// From here on a SIGTERM ends no step: the ranks tell each other beside the next update, after which
  /// preemption_requested() is true on all of them, for the program to save and end. All ranks call it,
  /// before the same update. Costs one reduction of 8 bytes an update, which nobody waits for at once.
  void install_preemption_handler(const PreemptionOptions& options = {});
  /// False where no handler was installed.
  bool preemption_requested() const;

  /// Accepted and said in the log: C++ code is compiled already, so nothing is traced or generated. Throws
  /// NotSupportedError for a schedule of passes.
  void compile(const CompileOptions& options = {});
  /// Whether compile() was called.
  bool is_compiled() const { return is_compiled_; }
  /// Seconds that compile() took for code generation: none.
  double get_compile_time() const { return 0.0; }
  /// Stage 3: releases the gathered parameters that nobody uses, small ones that stay whole as well. All
  /// ranks call it. Nothing at the other stages.
  void empty_partition_cache();
  /// Stages 1 to 3: moves states of these kinds from the device to the host's memory, which frees the
  /// device's for something else, until reload_states(). On a CPU they are with the host already. Calls that
  /// use them are errors meanwhile, and below stage 3 the parameters have no elements where they are among
  /// them; training goes on from the same values afterwards. Throws UsageError at stage 0, for a device
  /// `nvme`, beside the config's offload sections, and where parameters are gathered.
  void offload_states(const OffloadStatesOptions& options = {});
  void reload_states(bool non_blocking = false);
  /// Where this rank's states of the kind are now, each device once; empty where it has none in memory.
  /// Throws UsageError without an optimizer.
  std::vector<at::Device> state_devices(OffloadStateTypeEnum kind) const;
  /// Throws UsageError, naming `call`, between the two, where a parameter of the model got other memory
  /// after initialize(), naming it, and where a checkpoint was loaded in part.
  void require_states_here(const char* call) const;
  /// Gives the optimizer and its states back. The model keeps its weights and can be evaluated; training
  /// calls are refused from here on. At stage 3 its parameters are whole again, ordinary tensors on every
  /// rank, which must have memory for all of them, unless options.keep_partitioned says otherwise. All ranks
  /// call it. Throws UsageError, having changed nothing, inside of a GatheredParameters; where there is too
  /// little memory the parameters stay partitioned.
  void destroy(const DestroyOptions& options = {});

  // --- what happened ---

  int64_t micro_steps() const;
  int64_t global_steps() const;
  int64_t global_samples() const;
  int64_t skipped_steps() const;
  bool was_step_applied() const;
  /// L2 norm of the gradients of the last step that was applied, unscaled, before clipping; nothing before
  /// the first one and where it is not computed (fp32, stage 0, no clipping). Where no overflow check and no
  /// clipping has read it, this call waits for the device.
  std::optional<double> get_global_grad_norm() const;
  std::vector<double> get_lr() const;
  /// "momentum" or "betas" of each group, as pairs (momentum, 0) or (beta1, beta2).
  std::vector<std::pair<double, double>> get_mom() const;
  /// The option "type" of each group, "" where it has none.
  std::vector<std::string> get_type() const;
  /// The part of the layers that progressive layer drop keeps, from 1 before the first step() down to
  /// `theta`; the model's forward asks for it and leaves layers out. Nothing without that section.
  std::optional<double> get_pld_theta() const;
  double loss_scale() const;
  /// Milliseconds of the parts of the last micro batch (fwd_microstep, bwd_microstep, bwd_inner_microstep,
  /// bwd_allreduce_microstep, step_microstep) and of the steps of the last report (fwd, ...); empty without
  /// wall_clock_breakdown and before the first step().
  std::map<std::string, double> get_wall_clock_timers() const;
  /// The monitors of the config, which get the rate, the loss scale and the times of each update, and those
  /// that the program adds. write_events() hands them scalars of its own.
  monitor::MonitorMaster& monitor() { return *monitor_; }
  /// Bytes of model states that this rank holds between steps.
  zero::MemoryBytes memory() const;

  // --- settings ---

  /// What the config says, defaults and resolved batch sizes included; the setters below change it.
  const config::DeepSpeedConfig& config() const;
  /// (train batch, micro batch, accumulation steps)
  std::tuple<int64_t, int64_t, int64_t> get_batch_info() const;
  /// Changes the accumulation steps, from the next window on where one is under way. Throws UsageError where
  /// `size` is no multiple of micro batch * ranks.
  void set_train_batch_size(int64_t size);
  /// Keeps the accumulation steps and changes the train batch with it. Throws UsageError below 1, and where
  /// the train batch were no 64-bit number.
  void set_train_micro_batch_size(int64_t size);
  /// Of all groups, until the schedule's next step. Throws UsageError for a rate that is negative or not
  /// finite.
  void set_lr(double lr);
  /// Whether the gradients of the ranks are averaged, else they are summed (gradient_allreduce_op).
  bool gradient_average() const;
  /// Holds for the reductions from here on. Throws UsageError without an optimizer, within a backward, and
  /// where no config may ask for it: for a sum at stage 3.
  void set_gradient_average(bool averages);
  /// Names the embeddings' weights whose gradients sparse_gradients makes sparse. load_checkpoint() replaces
  /// the names by the file's; one that is not strict leaves those of weights that the file lacks.
  const std::set<std::string>& sparse_tensor_module_names() const;
  bool torch_autocast_enabled() const;
  /// Throws UsageError where torch_autocast is off.
  at::ScalarType torch_autocast_dtype() const;
  const comm::World& world() const;
  /// The ranks that hold the same layers and train them on other data. The group is the engine's own: its
  /// collectives meet no others.
  const comm::ProcessGroup& data_parallel_group() const;
  int rank() const;
  int local_rank() const;
  /// The rank whose weights all others start with.
  int broadcast_src_rank() const { return 0; }
  /// Where the model lies.
  at::Device device() const;
  int dp_world_size() const;
  int get_data_parallel_rank() const;
  /// Returns the rank's place among those that hold one copy of the model together; 0 where each holds it
  /// whole.
  int get_model_parallel_rank() const;
  int get_tensor_parallel_rank() const { return get_model_parallel_rank(); }
  const std::shared_ptr<zero::ZeroOptimizer>& optimizer() const;
  const std::shared_ptr<optim::LrScheduler>& lr_scheduler() const;
  /// Puts another schedule in the place of the one before, which is not stepped any more; nullptr: there is
  /// none from now on. All ranks call it alike. Throws UsageError without an optimizer.
  void set_lr_scheduler(const optim::LrSchedulerSource& schedule);
  const EngineModel& model() const;

  // --- checkpoints (engine/saving/) ---

  /// Writes `<directory>/<tag>/...` in DeepSpeed's layout and then `<directory>/latest`. All ranks call it.
  /// Throws, before anything is written, where gradients of an accumulation window would be lost, and where
  /// something else than a checkpoint has the tag's name (UsageError), or where another job is saving the tag
  /// (IoError); ranks on which nothing is wrong throw CheckpointError then.
  void save_checkpoint(const std::string& directory, const SaveOptions& options = {});
  /// With checkpoint.writer.decoupled save_checkpoint() returns once the states are copied to host memory,
  /// and they are written while the training goes on: waits until that is done. Throws what went wrong there;
  /// so do the next save_checkpoint() and load_checkpoint(). All ranks call it.
  void wait_for_checkpoint();
  /// Whether nothing is being written; a failure counts as done.
  bool checkpoint_is_saved() const;
  /// Reads what save_checkpoint() wrote; all ranks call it. `path` of the result is empty where there is no
  /// checkpoint. Where it throws before it writes, which is with LoadOptions::verify_first all but a disk
  /// that fails and a custom_load_fn that throws, nothing has changed on any rank; after that, calls that use
  /// the model are UsageErrors until a checkpoint was loaded.
  LoadResult load_checkpoint(const std::string& directory, const LoadOptions& options = {});
  /// The model's weights in their own dtype, in one file that torch.load reads. Rank 0 writes.
  void save_16bit_model(const std::string& directory, const std::string& file_name = "pytorch_model.bin",
                        bool exclude_frozen_parameters = false);
  /// The same under its older name.
  void save_fp16_model(const std::string& directory, const std::string& file_name = "pytorch_model.bin",
                       bool exclude_frozen_parameters = false) {
    save_16bit_model(directory, file_name, exclude_frozen_parameters);
  }

  /// The model's tensors by name: parameters (not the frozen ones, if so asked) and buffers, shared with the
  /// model; at stage 3 they are read inside of a zero::GatheredParameters or zero::ParameterAccess.
  std::vector<NamedTensor> module_state_dict(bool exclude_frozen_parameters = false) const;
  /// Copies the tensors into the model, and into the fp32 masters; at stage 3 all ranks give the same. Throws
  /// UsageError that names the tensor whose shape differs, or, if strict, that is missing or unknown; then
  /// nothing has changed.
  void load_module_state_dict(const std::vector<NamedTensor>& state, bool strict = true);

  /// Returns the options of a data loader, with the engine's ranks, seed and dataloader_drop_last. Throws
  /// UsageError for an unknown route.
  DataLoaderOptions loader_options(const DeepSpeedIoOptions& options) const;
  /// The data loader whose position checkpoints carry.
  void track_loader(std::shared_ptr<LoaderPosition> position);
  uint64_t seed() const;

  /// What other front ends build their forward on: the argument of a ForwardScope.
  const StepDriver& driver() const { return *driver_; }

 protected:
  explicit TrainingEngine(EngineParts parts);
  StepDriver& step_driver() { return *driver_; }
  TrainingState& state() { return *state_; }
  const TrainingState& state() const { return *state_; }
  /// Returns the optimizer. Throws UsageError, naming `call`, where there is none or its states are away.
  zero::ZeroOptimizer& require_optimizer(const char* call) const;
  /// Counts and reports a step of so many samples.
  void end_step(int64_t samples);

 private:
  explicit TrainingEngine(std::unique_ptr<TrainingState> state);
  /// The part of require_states_here() that a load needs: where states and weights are.
  void require_memory_here(const char* call) const;
  /// What it leaves to whoever comes next; talks to no rank.
  void let_go_of_model() noexcept;
  void report_progress();

  std::unique_ptr<TrainingState> state_;
  std::unique_ptr<StepDriver> driver_;
  std::unique_ptr<zero::ParkedStorages> parked_states_;  // between offload_states() and reload_states()
  std::unique_ptr<profile::Throughput> throughput_;      // null: not asked for
  std::unique_ptr<PreemptionWatch> preemption_;          // null: no handler was installed
  std::unique_ptr<monitor::MonitorMaster> monitor_;
  bool is_compiled_ = false;
};

/// Throws UsageError with torch's words and the way out, for an error in a model's forward that the config's
/// precision causes: torch's batch norm on a CPU wants its buffers in the type of its parameters. Returns for
/// any other.
DEEPSPEED_API void explain_forward_error(const TrainingEngine& engine, const c10::Error& error);

}  // namespace deepspeed
