// Defines the options that a program passes to initialize().
#pragma once

#include <concepts>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>

#include "deepspeed/base/export.h"
#include "deepspeed/base/json.h"
#include "deepspeed/comm/init.h"
#include "deepspeed/config/table/source.h"
#include "deepspeed/optim/schedules/lr_scheduler_source.h"
#include "deepspeed/optim/slices/param_group.h"

namespace torch::optim {
class Optimizer;
}

namespace deepspeed {

/// Holds the values that add_config_arguments() fills in.
struct ConfigArguments {
  bool deepspeed = false;        // --deepspeed: use DeepSpeed (a flag for the program's own use)
  std::string deepspeed_config;  // --deepspeed_config PATH
  bool deepscale = false;        // --deepscale, deprecated name of --deepspeed
  std::string deepscale_config;  // --deepscale_config PATH, deprecated name of --deepspeed_config
  int local_rank = -1;           // --local_rank, passed by launchers; equal to LOCAL_RANK

  /// Says whether --deepspeed was given, under either name.
  bool enabled() const { return deepspeed || deepscale; }
  /// Returns the config's path, given under either name; "" if neither was given.
  const std::string& config_path() const {
    return deepspeed_config.empty() ? deepscale_config : deepspeed_config;
  }
};

/// Adds the arguments to `parser`, which needs two functions of CLI::App: `add_flag(name, bool&, help)` and
/// `add_option(name, value&, help)`. `arguments` must live until the parser has run:
///
///     CLI::App app;
///     deepspeed::ConfigArguments arguments;
///     deepspeed::add_config_arguments(app, arguments);
///     CLI11_PARSE(app, argc, argv);
template <class Parser>
void add_config_arguments(Parser& parser, ConfigArguments& arguments) {
  parser.add_flag("--deepspeed", arguments.deepspeed, "Use DeepSpeed");
  parser.add_option("--deepspeed_config", arguments.deepspeed_config, "Path of DeepSpeed's JSON config");
  parser.add_flag("--deepscale", arguments.deepscale, "Deprecated, use --deepspeed");
  parser.add_option("--deepscale_config", arguments.deepscale_config, "Deprecated, use --deepspeed_config");
  parser.add_option("--local_rank", arguments.local_rank,
                    "This process's rank on its machine, set by launchers");
}

/// Holds a ready torch::optim::Optimizer, or a callable that makes one. The callable takes the parameters as
/// one std::vector<at::Tensor> and returns a shared_ptr or unique_ptr.
class DEEPSPEED_API OptimizerSource {
 public:
  using Pointer = std::shared_ptr<torch::optim::Optimizer>;

  OptimizerSource(std::nullptr_t = nullptr) {}

  template <class T>
  requires std::is_convertible_v<std::shared_ptr<T>, Pointer> OptimizerSource(std::shared_ptr<T> optimizer)
      : ready_(std::move(optimizer)) {}

  template <class F>
  requires std::invocable<F&, std::vector<at::Tensor>> OptimizerSource(F make)
      : make_([make = std::move(make)](std::vector<at::Tensor> parameters) -> Pointer {
          return make(std::move(parameters));
        }) {}

  explicit operator bool() const { return ready_ != nullptr || make_ != nullptr; }
  bool is_callable() const { return make_ != nullptr; }
  /// Returns the object, or what the callable makes from `parameters`. Throws UsageError if it returns null.
  Pointer get(const std::vector<at::Tensor>& parameters) const;

 private:
  Pointer ready_;
  std::function<Pointer(std::vector<at::Tensor>)> make_;
};

namespace optim {
class Optimizer;
}
class Mpu;

/// Makes an optimizer of flat slices (optim/slices/optimizer.h) over `groups`, and completes their options.
using SliceOptimizerFactory =
    std::function<std::unique_ptr<optim::Optimizer>(std::vector<optim::ParamGroup> groups)>;

/// Groups parameters that share hyperparameters. `options` override those of the config's `optimizer.params`.
struct DEEPSPEED_API ModelParameters {
  std::vector<at::Tensor> params;
  Json options = Json::object();
};

/// Holds the arguments of initialize(), under DeepSpeed's names. One of `config`, `config_params` and `args`
/// with --deepspeed_config is required; everything else is optional.
struct InitializeOptions {
  std::optional<config::ConfigSource> config = {};  // path, JSON text or Json object
  OptimizerSource optimizer = nullptr;              // object or callable, used instead of the config's
  /// Makes the program's own optimizer of flat slices, which every stage can step. A slice may hold parts of
  /// parameters, so the optimizer's updates must be elementwise at a stage that splits parameters. Do not
  /// pass `optimizer` too. The optimizer has the groups of model_parameters.
  SliceOptimizerFactory slice_optimizer = nullptr;
  std::vector<ModelParameters> model_parameters = {};  // default: one group of all trainable parameters
  optim::LrSchedulerSource lr_scheduler = nullptr;  // object or callable, replaces the config's `scheduler`
  int distributed_port = 29500;
  comm::World world = {};                                  // default: the result of init_distributed()
  std::optional<ConfigArguments> args = {};                // as filled in by add_config_arguments()
  std::optional<config::ConfigSource> config_params = {};  // older name of `config`
  std::shared_ptr<Mpu> mpu = nullptr;  // for a program that divides the model itself (comm/mpu.h)
  std::optional<std::vector<int64_t>> mesh_param = {};  // (ranks, 1)
  std::optional<bool> dist_init_required = {};          // false: require that init_distributed() ran before
  // Pairs the engines of different ranks when several threads call initialize(). It must be equal on all
  // ranks. "" pairs the nth engine of each rank.
  std::string engine_name = {};
  // Gives each rank's default generators a stream of their own, derived from the seed. Ranks that divide a
  // layer share one. With false the generators continue as they are, unless the config has a `seed`. They
  // always continue as they are if model_parallel_cuda_manual_seed() has set them for an `mpu`.
  bool starts_rank_streams = true;
};

}  // namespace deepspeed
