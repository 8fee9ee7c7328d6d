// Everything that engines share, however their steps are driven. A TrainingEngine owns the training, reports
// progress, changes settings, saves and loads. It composes the parts below it (ZeRO optimizer, schedule, loss
// scaler, rank groups, checkpoints) and implements none of them. Method names and meanings are DeepSpeed's.
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
  /// Ends the engine without communication. At stage 3 the model stays partitioned; zero::make_whole() or
  /// initialize() can continue with it.
  virtual ~TrainingEngine();
  TrainingEngine(const TrainingEngine&) = delete;
  TrainingEngine& operator=(const TrainingEngine&) = delete;

  // --- training ---

  void zero_grad();
  void train(bool mode = true);
  void eval() { train(false); }

  /// Turns SIGTERM, or another signal of `options`, into a request to save and end. The ranks exchange the
  /// request during the next update; then preemption_requested() is true on all of them. Collective: all
  /// ranks call this before the same update. It costs one asynchronous 8-byte reduction per update.
  void install_preemption_handler(const PreemptionOptions& options = {});
  /// Returns whether preemption was requested; false if no handler was installed.
  bool preemption_requested() const;

  /// Logs that there is nothing to do: C++ code is already compiled. Throws NotSupportedError for a schedule
  /// of passes.
  void compile(const CompileOptions& options = {});
  /// Returns whether compile() was called.
  bool is_compiled() const { return is_compiled_; }
  /// Returns the seconds that compile() spent on code generation: always 0.
  double get_compile_time() const { return 0.0; }
  /// Releases gathered parameters that are not in use, at stage 3. This includes small ones that normally
  /// stay whole. Collective. Does nothing at other stages.
  void empty_partition_cache();
  /// Moves states of the given kinds to host memory until reload_states(). This frees device memory for other
  /// uses, at stages 1 to 3. On a CPU the states are there already. Meanwhile calls that use them throw;
  /// below stage 3 moved parameters have no elements. After reload_states() training continues from the same
  /// values. Throws UsageError at stage 0, for the device `nvme`, if the config has offload sections, and
  /// while parameters are gathered.
  void offload_states(const OffloadStatesOptions& options = {});
  void reload_states(bool non_blocking = false);
  /// Returns the devices that hold this rank's states of the kind, each once. Empty if it has none in memory.
  /// Throws UsageError without an optimizer.
  std::vector<at::Device> state_devices(OffloadStateTypeEnum kind) const;
  /// Throws UsageError, naming `call`, while the engine's states are unusable. That is between
  /// offload_states() and reload_states(), after a load that failed halfway, and if a parameter got other
  /// memory after initialize(). The error then names the parameter.
  void require_states_here(const char* call) const;
  /// Releases the optimizer and its states. The model keeps its weights and can be evaluated; training calls
  /// throw from now on. At stage 3 its parameters become whole again, ordinary tensors on every rank, unless
  /// options.keep_partitioned is set. Each rank needs memory for all of them. Collective. Throws UsageError
  /// inside of a GatheredParameters, and changes nothing then. If memory is too small the parameters stay
  /// partitioned.
  void destroy(const DestroyOptions& options = {});

  // --- what happened ---

  int64_t micro_steps() const;
  int64_t global_steps() const;
  int64_t global_samples() const;
  int64_t skipped_steps() const;
  bool was_step_applied() const;
  /// Returns the L2 norm of the last applied step's gradients, unscaled, before clipping. Nothing before the
  /// first step, or if it is not computed (fp32, stage 0, no clipping). Waits for the device unless an
  /// overflow check or clipping has already read the norm.
  std::optional<double> get_global_grad_norm() const;
  std::vector<double> get_lr() const;
  /// Returns "momentum" or "betas" of each group, as pairs (momentum, 0) or (beta1, beta2).
  std::vector<std::pair<double, double>> get_mom() const;
  /// Returns the option "type" of each group, "" if it has none.
  std::vector<std::string> get_type() const;
  /// Returns the share of layers that progressive layer drop keeps. It falls from 1 before the first step()
  /// to `theta`. The model's forward calls this and skips layers. Nothing without that config section.
  std::optional<double> get_pld_theta() const;
  double loss_scale() const;
  /// Returns milliseconds of the parts of the last micro batch and of the last report. The names are
  /// fwd_microstep, bwd_microstep, bwd_inner_microstep, bwd_allreduce_microstep, step_microstep, and fwd, ...
  /// for the steps of the last report. Empty without wall_clock_breakdown and before the first step().
  std::map<std::string, double> get_wall_clock_timers() const;
  /// Returns the config's monitors and those that the program adds. They get the learning rate, the loss
  /// scale and the times of each update. write_events() sends them other scalars.
  monitor::MonitorMaster& monitor() { return *monitor_; }
  /// Returns the bytes of model states that this rank holds between steps.
  zero::MemoryBytes memory() const;

  // --- settings ---

  /// Returns the config with defaults and resolved batch sizes. The setters below change it.
  const config::DeepSpeedConfig& config() const;
  /// Returns (train batch, micro batch, accumulation steps).
  std::tuple<int64_t, int64_t, int64_t> get_batch_info() const;
  /// Sets the train batch by changing the accumulation steps. A window in progress keeps its steps. Throws
  /// UsageError if `size` is not a multiple of micro batch * ranks.
  void set_train_batch_size(int64_t size);
  /// Changes the micro batch and with it the train batch; the accumulation steps stay. Throws UsageError
  /// below 1, and if the train batch would exceed 64 bits.
  void set_train_micro_batch_size(int64_t size);
  /// Sets the learning rate of all groups, until the schedule's next step. Throws UsageError for a rate that
  /// is negative or not finite.
  void set_lr(double lr);
  /// Returns whether gradients are averaged over the ranks; otherwise they are summed
  /// (gradient_allreduce_op).
  bool gradient_average() const;
  /// Sets whether later reductions average or sum gradients. Throws UsageError without an optimizer, within a
  /// backward, and if no config could ask for it, as for a sum at stage 3.
  void set_gradient_average(bool averages);
  /// Names the embedding weights whose gradients are sparse, as DeepSpeed's checkpoints record them. At first
  /// they are those of the config's sparse_gradients. load_checkpoint() replaces them by the file's names; a
  /// non-strict load keeps those of weights that the file lacks.
  const std::set<std::string>& sparse_tensor_module_names() const;
  bool torch_autocast_enabled() const;
  /// Returns the autocast dtype. Throws UsageError if torch_autocast is off.
  at::ScalarType torch_autocast_dtype() const;
  const comm::World& world() const;
  /// Returns the ranks that hold the same layers and train them on other data. The group belongs to the
  /// engine, so its collectives cannot mix with others.
  const comm::ProcessGroup& data_parallel_group() const;
  int rank() const;
  int local_rank() const;
  /// Returns the rank whose weights all others start with.
  int broadcast_src_rank() const { return 0; }
  /// Returns the model's device.
  at::Device device() const;
  int dp_world_size() const;
  int get_data_parallel_rank() const;
  /// Returns this rank's number among the ranks that together hold one copy of the model. It is 0 if each
  /// rank holds the whole model.
  int get_model_parallel_rank() const;
  int get_tensor_parallel_rank() const { return get_model_parallel_rank(); }
  const std::shared_ptr<zero::ZeroOptimizer>& optimizer() const;
  const std::shared_ptr<optim::LrScheduler>& lr_scheduler() const;
  /// Replaces the schedule; the old one is not stepped any more. nullptr: no schedule. Collective, with equal
  /// schedules. Throws UsageError without an optimizer.
  void set_lr_scheduler(const optim::LrSchedulerSource& schedule);
  const EngineModel& model() const;

  // --- checkpoints (engine/saving/) ---

  /// Writes `<directory>/<tag>/...` in DeepSpeed's layout and then `<directory>/latest`. Collective. Before
  /// anything is written it throws UsageError if gradients of an accumulation window would be lost or the
  /// tag's name belongs to something other than a checkpoint, and IoError if another job is saving the tag.
  /// Ranks without a problem of their own then throw CheckpointError.
  void save_checkpoint(const std::string& directory, const SaveOptions& options = {});
  /// Waits until a background save has been written. With checkpoint.writer.decoupled save_checkpoint()
  /// returns once the states are copied to host memory, and they are written during training. Throws what
  /// went wrong there; so do the next save_checkpoint() and load_checkpoint(). Collective.
  void wait_for_checkpoint();
  /// Returns whether nothing is being written; a failure counts as done.
  bool checkpoint_is_saved() const;
  /// Reads what save_checkpoint() wrote. Collective. `path` of the result is empty if there is no checkpoint.
  /// All ranks check their files before any of them changes its engine. If a check fails, all ranks throw,
  /// and nothing has changed. With LoadOptions::verify_first only a failing disk or a throwing custom_load_fn
  /// can make the load fail later. After that, calls that use the model throw UsageError until a checkpoint
  /// was loaded.
  LoadResult load_checkpoint(const std::string& directory, const LoadOptions& options = {});
  /// Writes the model's weights in their own dtype to one file that torch.load reads. Rank 0 writes. If ranks
  /// divide the model, each part gets a file from the first rank that holds it. Collective.
  void save_16bit_model(const std::string& directory, const std::string& file_name = "pytorch_model.bin",
                        bool exclude_frozen_parameters = false);
  /// Calls save_16bit_model(), under its older name.
  void save_fp16_model(const std::string& directory, const std::string& file_name = "pytorch_model.bin",
                       bool exclude_frozen_parameters = false) {
    save_16bit_model(directory, file_name, exclude_frozen_parameters);
  }

  /// Returns the model's parameters and buffers by name, sharing its memory. Frozen parameters are left out
  /// on request. At stage 3 read them inside of a zero::GatheredParameters or zero::ParameterAccess.
  std::vector<NamedTensor> module_state_dict(bool exclude_frozen_parameters = false) const;
  /// Copies the tensors into the model and its fp32 masters. At stage 3 all ranks pass the same values.
  /// Throws UsageError that names a tensor with another shape or, if strict, one that is missing or unknown.
  /// Nothing has changed then.
  void load_module_state_dict(const std::vector<NamedTensor>& state, bool strict = true);

  /// Returns a data loader's options, with the engine's ranks, seed and dataloader_drop_last. Throws
  /// UsageError for an unknown options.route.
  DataLoaderOptions loader_options(const DeepSpeedIoOptions& options) const;
  /// Chooses the data loader whose position checkpoints record. `position` is the loader's position().
  void track_loader(std::shared_ptr<LoaderPosition> position);
  uint64_t seed() const;

  /// Returns the driver of forwards and steps, the argument of a ForwardScope. Other front ends build their
  /// forward on it.
  const StepDriver& driver() const { return *driver_; }

 protected:
  explicit TrainingEngine(EngineParts parts);
  StepDriver& step_driver() { return *driver_; }
  TrainingState& state() { return *state_; }
  const TrainingState& state() const { return *state_; }
  /// Returns the optimizer. Throws UsageError, naming `call`, if there is none or its states are offloaded.
  zero::ZeroOptimizer& require_optimizer(const char* call) const;
  /// Counts and reports a step of this many samples.
  void end_step(int64_t samples);

 private:
  explicit TrainingEngine(std::unique_ptr<TrainingState> state);
  /// Checks that states and weights are in place, as a load needs. See require_states_here().
  void require_memory_here(const char* call) const;
  /// Releases the model so that another engine can take it; does not communicate.
  void let_go_of_model() noexcept;
  void report_progress();

  std::unique_ptr<TrainingState> state_;
  std::unique_ptr<StepDriver> driver_;
  std::unique_ptr<zero::ParkedStorages> parked_states_;  // between offload_states() and reload_states()
  std::unique_ptr<profile::Throughput> throughput_;      // null: not requested
  std::unique_ptr<PreemptionWatch> preemption_;          // null: no handler was installed
  std::unique_ptr<monitor::MonitorMaster> monitor_;
  bool is_compiled_ = false;
};

/// Throws UsageError instead of an error of forward() that the config's precision causes. The UsageError has
/// torch's own text and the way out. The cause is a layer such as batch norm, which on a CPU needs its
/// buffers in the dtype of its parameters. Returns for any other error.
DEEPSPEED_API void explain_forward_error(const TrainingEngine& engine, const c10::Error& error);

}  // namespace deepspeed
