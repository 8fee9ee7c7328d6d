// What a program gives initialize() is here.
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

/// Holds what add_config_arguments() fills in.
struct ConfigArguments {
  bool deepspeed = false;        // --deepspeed: use DeepSpeed (a flag for the program's own use)
  std::string deepspeed_config;  // --deepspeed_config PATH
  bool deepscale = false;        // --deepscale, deprecated name of --deepspeed
  std::string deepscale_config;  // --deepscale_config PATH, deprecated name of --deepspeed_config
  int local_rank = -1;           // --local_rank: what a launcher passes; LOCAL_RANK says the same

  /// Says whether --deepspeed was given, under either name.
  bool enabled() const { return deepspeed || deepscale; }
  /// Returns the config's path, under either name; "" where neither was given.
  const std::string& config_path() const {
    return deepspeed_config.empty() ? deepscale_config : deepspeed_config;
  }
};

/// Adds the arguments to `parser`, which works as CLI::App does: `add_flag(name, bool&, help)` and
/// `add_option(name, value&, help)`. `arguments` must live until the parser ran:
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

/// A shared_ptr to any torch::optim::Optimizer, or a callable that takes the parameters, one
/// std::vector<at::Tensor>, and returns such an object as a shared_ptr or unique_ptr.
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
  /// Returns the object, or what the callable makes of `parameters`. Throws UsageError where it makes none.
  Pointer get(const std::vector<at::Tensor>& parameters) const;

 private:
  Pointer ready_;
  std::function<Pointer(std::vector<at::Tensor>)> make_;
};

namespace optim {
class Optimizer;
}
class Mpu;

/// Makes an optimizer of flat slices (optim/slices/optimizer.h) over groups whose options it completes.
using SliceOptimizerFactory =
    std::function<std::unique_ptr<optim::Optimizer>(std::vector<optim::ParamGroup> groups)>;

/// Joins parameters that share hyperparameters; `options` override those of the config's `optimizer.params`.
struct DEEPSPEED_API ModelParameters {
  std::vector<at::Tensor> params;
  Json options = Json::object();
};

/// Arguments of initialize(), DeepSpeed's names. All but one of `config`, `args` with --deepspeed_config and
/// `config_params` may be left out.
struct InitializeOptions {
  std::optional<config::ConfigSource> config = {};  // path, JSON text or Json object
  OptimizerSource optimizer = nullptr;              // object or callable, instead of the config's
  /// Makes an optimizer of the program's own that every stage can step: it sees flat slices in place of
  /// parameters, so that its updates must be elementwise where a stage cuts parameters. Not beside
  /// `optimizer`; its groups are those of model_parameters.
  SliceOptimizerFactory slice_optimizer = nullptr;
  std::vector<ModelParameters> model_parameters = {};  // default: one group of all that need a gradient
  optim::LrSchedulerSource lr_scheduler = nullptr;  // object or callable, instead of the config's `scheduler`
  int distributed_port = 29500;
  comm::World world = {};                                  // default: init_distributed()
  std::optional<ConfigArguments> args = {};                // what add_config_arguments() has filled in
  std::optional<config::ConfigSource> config_params = {};  // the older name of `config`
  std::shared_ptr<Mpu> mpu = nullptr;  // of a program that shares the model out itself (comm/mpu.h)
  std::optional<std::vector<int64_t>> mesh_param = {};  // (ranks, 1)
  std::optional<bool> dist_init_required = {};  // false: init_distributed() must have run; else it runs here
  // Which engines of the ranks belong together, where several threads initialize: the same on all ranks. "":
  // the nth of one rank and the nth of the others.
  std::string engine_name = {};
  // Whether each rank's default generators get a stream of their own, which follows from the seed; the slices
  // of a layer have one in common. false: they go on as they are, unless the config has a `seed`. Where
  // model_parallel_cuda_manual_seed() has set them for an `mpu`, they always do.
  bool starts_rank_streams = true;
};

}  // namespace deepspeed
