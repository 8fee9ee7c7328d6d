// Loads the optimizer's masters and states, from files saved at any stage.
//
// The files are opened, pipeline stage by pipeline stage if there are several. Their groups and states are
// compared with the optimizer's. Then each slice of this rank reads its masters and states, and padding
// between parameters is zeroed.
#include <algorithm>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <unordered_set>
#include <utility>
#include <variant>
#include <vector>

#include <ATen/ops/empty.h>

#include "deepspeed/base/error.h"
#include "deepspeed/base/json.h"
#include "deepspeed/base/log.h"
#include "deepspeed/base/message.h"
#include "deepspeed/checkpoint/sources/misfit_error.h"
#include "deepspeed/checkpoint/sources/unnamed_stages.h"
#include "deepspeed/checkpoint/tag/layout.h"
#include "deepspeed/engine/saving/checkpoint_load.h"
#include "deepspeed/optim/slices/hyperparameters_json.h"
#include "deepspeed/optim/slices/optimizer.h"
#include "deepspeed/optim/slices/param_group.h"
#include "deepspeed/zero/compressed_exchange.h"
#include "deepspeed/zero/params/param_store.h"
#include "deepspeed/zero/update/state_slice.h"
#include "deepspeed/zero/zero_optimizer.h"
#include "deepspeed/zero/zero_state.h"

namespace deepspeed {
namespace {

namespace fs = std::filesystem;
constexpr const char* kWithoutStates = "; load with load_optimizer_states = false";
constexpr const char* kOfOtherConverters =
    "; converters other than this version's ds_to_universal leave out what Adam does not have: convert the "
    "checkpoint by it";
constexpr int64_t kVerifiedNumel = int64_t{1}
                                   << 20;  // elements per read when verifying, where nothing is kept

// Adds to an error that load_optimizer_states = false may help. A stage 3 checkpoint has its weights in the
// optimizer's files, so the option does not help there.
std::string with_way_out(const Error& error, const CheckpointLoad& load) {
  const std::string text = error.what();
  const bool names_it = text.find("load_optimizer_states") != std::string::npos;
  return load.is_sharded || names_it ? text : text + kWithoutStates;
}

// Zeroes what lies between and after the parameters.
void zero_padding(const at::Tensor& flat, const std::vector<zero::ParamPiece>& pieces) {
  int64_t end = 0;
  for (const zero::ParamPiece& piece : pieces) {
    if (piece.in_interval.begin > end) flat.narrow(0, end, piece.in_interval.begin - end).zero_();
    end = piece.in_interval.end;
  }
  flat.narrow(0, end, flat.numel() - end).zero_();
}

// Returns which elements of its parameter the piece covers.
Interval elements_of(const zero::ParamPiece& piece) {
  return {piece.offset_in_param, piece.offset_in_param + piece.in_interval.numel()};
}

// Returns the per-parameter numbers in the files for a group, in the group's order. Throws CheckpointError if
// the files have a number for only some parameters.
std::vector<std::pair<std::string, std::vector<double>>> numbers_of(
    const checkpoint::OptimizerFiles::Group& source, const zero::StoredGroup& group) {
  std::vector<std::pair<std::string, std::vector<double>>> numbers;
  for (const auto& [name, by_parameter] : source.numbers) {
    std::vector<double> values;
    const std::string* lacking = nullptr;
    for (const NamedTensor& param : group.params) {
      const auto found = by_parameter.find(param.name);
      if (found != by_parameter.end()) {
        values.push_back(found->second);
      } else {
        lacking = &param.name;
      }
    }
    if (values.empty()) continue;
    if (lacking != nullptr)
      raise<CheckpointError>("the optimizer files have '", name, "' of other parameters, but none of '",
                             *lacking, "'", kWithoutStates);
    numbers.emplace_back(name, std::move(values));
  }
  return numbers;
}

bool is_number(const optim::HyperparameterValue& value) {
  return std::holds_alternative<int64_t>(value) || std::holds_alternative<double>(value);
}

void read_and_forget(const checkpoint::OptimizerFiles& source, const std::string& parameter,
                     const std::string& state, const Interval& elements, at::ScalarType type) {
  const at::Tensor memory = at::empty({std::min(kVerifiedNumel, elements.numel())}, type);
  for (int64_t begin = elements.begin; begin < elements.end; begin += kVerifiedNumel) {
    const Interval part{begin, std::min(begin + kVerifiedNumel, elements.end)};
    source.read(parameter, state, part, memory.narrow(0, 0, part.numel()));
  }
}

std::vector<checkpoint::PipelineLayer> layers_of(const EngineModel& model) {
  std::vector<checkpoint::PipelineLayer> layers;
  for (const LayerWeights& layer : model.layers)
    layers.push_back({layer.prefix, layer.is_tied, layer.stored_as});
  return layers;
}

// Throws for a missing layer file. Otherwise its absence would show up as a misfit in the sizes.
void require_own_layers(const CheckpointLoad& load) {
  for (const StoredLayer& layer : load.parts.model.stored_layers) {
    const fs::path path = checkpoint::layer_states_path(load.directory, load.tag, layer.index, layer.slice);
    if (!layer.names.empty() && !fs::exists(path)) raise<CheckpointError>("the file ", path, " is missing");
  }
}

// Opens what DeepSpeed's pipelines write at ZeRO stage 0, which names no parameters. The sizes in all stages'
// files may tell which parameters the states are of. If they do not, and as many stages saved as load, each
// stage assumes the order of its own parameters. All ranks decide this from the same files, since one stage
// by itself might fit by chance.
checkpoint::OptimizerFiles open_unnamed(const CheckpointLoad& load,
                                        const std::vector<checkpoint::NamedShapes>& own_shapes) {
  const size_t num_saved = checkpoint::find_mp_ranks(load.directory, load.tag).size();
  const bool is_as_many = num_saved == size_t(load.parts.groups.model_size());
  const auto in_own_order = [&] {
    return checkpoint::OptimizerFiles::of_model_file(load.file, load.states.optimizer, own_shapes);
  };
  const bool has_slices = load.parts.groups.num_slices() > 1;
  const bool has_frozen = std::ranges::any_of(
      load.parts.model.parameters, [](const NamedTensor& param) { return !param.tensor.requires_grad(); });
  if (has_slices && is_as_many) return in_own_order();
  if (has_slices || (has_frozen && !is_as_many)) {
    raise<checkpoint::MisfitError>(
        load.path,
        " does not name the parameters whose optimizer states it holds, as DeepSpeed's pipelines write it at "
        "ZeRO stage 0, and with ",
        has_slices ? "layers that ranks share out" : "frozen parameters",
        " their order does not say it: resume at the number of stages that wrote it, which has ", num_saved,
        " model files, or load with load_optimizer_states = false");
  }
  require_own_layers(load);
  try {
    return checkpoint::open_unnamed_stages(load.directory, load.tag, *load.archives,
                                           layers_of(load.parts.model));
  } catch (const checkpoint::MisfitError&) {
    if (!is_as_many) throw;
    return in_own_order();
  }
}

checkpoint::OptimizerFiles open_stages(const CheckpointLoad& load,
                                       const std::vector<checkpoint::NamedShapes>& own_shapes) {
  using checkpoint::OptimizerFiles;
  if (load.states.optimizer.is_none() && checkpoint::find_optim_states(load.directory, load.tag).empty())
    raise<CheckpointError>(load.directory, "/", load.tag, " holds no optimizer states");
  const std::vector<int> places = checkpoint::find_mp_ranks(load.directory, load.tag);
  const ParallelGroups& groups = load.parts.groups;
  const bool is_whole = load.states.states.has_module;
  const bool is_unnamed = !load.states.optimizer.is_none() && !load.states.states.param_shapes;
  if (is_unnamed && !is_whole) return open_unnamed(load, own_shapes);
  const auto open_stage = [&](int mp_rank, const std::shared_ptr<checkpoint::DeferredArchive>& file,
                              const checkpoint::ModelStates& states) {
    const auto& shapes = states.states.param_shapes;
    if (states.optimizer.is_none())
      return OptimizerFiles::of_partitions(load.directory, load.tag, *load.archives, shapes, mp_rank);
    return OptimizerFiles::of_model_file(file, states.optimizer, shapes.value_or(own_shapes));
  };
  OptimizerFiles result = open_stage(load.mp_rank, load.file, load.states);
  const auto has_all = [&] {
    if (result.holds_nothing()) return true;
    return std::ranges::all_of(own_shapes, [&](const checkpoint::NamedShapes& group) {
      return std::ranges::all_of(group, [&](const auto& param) { return result.holds(param.first); });
    });
  };
  for (const int mp_rank : places) {
    const bool is_of_slice = groups.slice_of(mp_rank, int(places.size())) == groups.slice();
    if (mp_rank == load.mp_rank || !is_of_slice || is_whole || has_all()) continue;
    const fs::path path = checkpoint::model_states_path(load.directory, load.tag, mp_rank);
    const auto file = load.archives->open(path);
    result.join(open_stage(mp_rank, file, checkpoint::parse_model_states(file->value())));
  }
  return result;
}

// Returns whether masters come from the files; otherwise they are set from the model's weights.
bool wants_master(const CheckpointLoad& load) {
  return load.is_sharded || load.parts.config.zero_optimization.load_from_fp32_weights;
}

// Returns the group's hyperparameters, replaced by those of the file. Throws CheckpointError if one has
// another type.
optim::Hyperparameters loaded_options(const CheckpointLoad& load, size_t group) {
  const Json& options = load.optimizer->groups()[group].options;
  const auto& own = load.parts.optimizer->param_groups()[group].options;
  const std::string where = message("param_groups[", group, "]");
  Json known = Json::object();
  for (const auto& [key, value] : options.items()) {
    if (own.contains(key)) known[key] = value;
  }
  optim::Hyperparameters loaded = own;
  set_from_json(loaded, known, where);
  for (size_t i = 0; i < own.items().size(); ++i) {
    const auto& [key, before] = own.items()[i];
    const auto& after = loaded.items()[i].second;
    if (before.index() == after.index() || (is_number(before) && is_number(after))) continue;
    raise<CheckpointError>(where, ".", key, " is ", known[key].dump(),
                           " in the checkpoint, which is of another kind than the engine's", kWithoutStates);
  }
  return loaded;
}

void check_states(const CheckpointLoad& load, size_t index) {
  const auto& group = load.optimizer->groups()[index];
  if (group.states.empty() && group.step == 0) return;
  const optim::Optimizer& own = load.parts.optimizer->base_optimizer();
  optim::SliceState state{{}, group.step, numbers_of(group, load.parts.optimizer->store().groups()[index])};
  for (const auto& [name, type] : group.states) state.tensors.emplace_back(name, at::empty({0}, type));
  try {
    own.check_state(state);
  } catch (const Error& error) {
    raise<CheckpointError>("the optimizer states of parameter group ", index, " are not those of ",
                           own.name(), ", the engine's optimizer: ", error.what(),
                           load.parts.config.checkpoint.load_universal ? kOfOtherConverters : "",
                           kWithoutStates);
  }
}

// Loads masters and states of one slice. Returns false if the files have no master for it.
bool load_slice(const CheckpointLoad& load, size_t index, const zero::StateSlice& slice) {
  const checkpoint::OptimizerFiles& source = *load.optimizer;
  const auto pieces = load.parts.optimizer->state().pieces(index, slice.interval);
  const auto& params = load.parts.optimizer->store().groups()[index].params;
  bool has_master = true;
  // Reads the part of a flat state that is in the slice. What the files lack stays unchanged.
  const auto read = [&](const std::string& state, const at::Tensor& flat) {
    for (const zero::ParamPiece& piece : pieces) {
      const std::string& name = params[piece.index].name;
      if (source.numel(name, state) == 0 && state == checkpoint::kMasterState) {
        has_master = false;
        continue;
      }
      source.read(name, state, elements_of(piece),
                  flat.narrow(0, piece.in_interval.begin, piece.in_interval.numel()));
    }
  };
  if (wants_master(load)) read(checkpoint::kMasterState, slice.master);
  optim::SliceState state;
  state.step = source.groups()[index].step;
  state.numbers = numbers_of(source.groups()[index], load.parts.optimizer->store().groups()[index]);
  for (const auto& [name, type] : source.groups()[index].states) {
    const at::Tensor flat = at::empty({slice.interval.numel()}, slice.master.options().dtype(type));
    zero_padding(flat, pieces);
    read(name, flat);
    state.tensors.emplace_back(name, flat);
  }
  if (!state.tensors.empty() || state.step > 0) slice.load(state);
  return has_master;
}

// Returns whether the files have this optimizer's weights in another dtype than the engine.
bool is_of_other_precision(const CheckpointLoad& load) {
  const at::ScalarType own = load.parts.optimizer->store().dtype();
  std::unordered_set<std::string> trained;
  for (const zero::StoredGroup& group : load.parts.optimizer->store().groups()) {
    for (const NamedTensor& param : group.params) trained.insert(param.name);
  }
  return std::ranges::any_of(load.module, [&](const StoredTensor& stored) {
    return trained.contains(stored.name) && stored.form.scalar_type() != own;
  });
}

}  // namespace

void open_optimizer(CheckpointLoad& load) {
  if (!load.wants_optimizer()) return;
  const fs::path folder = fs::path(load.directory) / load.tag;
  std::vector<checkpoint::NamedShapes> shapes;
  for (const zero::StoredGroup& group : load.parts.optimizer->store().groups()) {
    auto& of_group = shapes.emplace_back();
    for (const NamedTensor& param : group.params)
      of_group.emplace_back(param.name, param.tensor.sizes().vec());
  }
  const bool loads_universal = load.parts.config.checkpoint.load_universal;
  if (!loads_universal && checkpoint::is_universal(folder)) {
    raise<CheckpointError>(folder,
                           " is a universal checkpoint: it loads with checkpoint.load_universal = true");
  }
  try {
    load.optimizer = loads_universal
                         ? checkpoint::OptimizerFiles::of_universal(folder, *load.archives, shapes)
                         : open_stages(load, shapes);
  } catch (const checkpoint::MisfitError& error) {
    throw checkpoint::MisfitError(with_way_out(error, load));
  } catch (const CheckpointError& error) {
    throw CheckpointError(with_way_out(error, load));
  }
}

void check_optimizer(const CheckpointLoad& load) {
  if (!load.optimizer) return;
  const checkpoint::OptimizerFiles& source = *load.optimizer;
  const auto& groups = load.parts.optimizer->store().groups();
  if (source.groups().size() != groups.size()) {
    raise<CheckpointError>("the checkpoint has ", source.groups().size(),
                           " parameter groups, the optimizer has ", groups.size(), kWithoutStates);
  }
  for (size_t index = 0; index < groups.size(); ++index) {
    check_states(load, index);
    loaded_options(load, index);
    for (const NamedTensor& param : groups[index].params) {
      const auto check = [&, numel = param.tensor.numel()](const std::string& state) {
        const int64_t found = source.numel(param.name, state);
        if (found >= numel || (found == 0 && state == checkpoint::kMasterState)) return;
        raise<CheckpointError>("the optimizer files hold ", found, " elements of the state '", state,
                               "' of '", param.name, "', expected ", numel, kWithoutStates);
      };
      if (wants_master(load)) check(checkpoint::kMasterState);
      for (const auto& [name, type] : source.groups()[index].states) check(name);
    }
  }
}

void verify_optimizer(const CheckpointLoad& load) {
  if (!load.optimizer) return;
  const checkpoint::OptimizerFiles& source = *load.optimizer;
  const zero::ZeroOptimizer& optimizer = *load.parts.optimizer;
  const size_t num_groups = std::min(source.groups().size(), optimizer.store().groups().size());
  for (size_t index = 0; index < num_groups; ++index) {
    const auto& params = optimizer.store().groups()[index].params;
    auto states = source.groups()[index].states;
    if (wants_master(load)) states.emplace_back(checkpoint::kMasterState, at::kFloat);
    for (const auto& [state, type] : states) {
      for (const zero::ParamPiece& piece : optimizer.state().pieces(index)) {
        const std::string& name = params[piece.index].name;
        const Interval elements = elements_of(piece);
        if (elements.end <= source.numel(name, state)) read_and_forget(source, name, state, elements, type);
      }
    }
  }
}

void load_hyperparameters(const CheckpointLoad& load) {
  if (!load.optimizer) return;
  auto& groups = load.parts.optimizer->param_groups();
  for (size_t index = 0; index < groups.size(); ++index) groups[index].options = loaded_options(load, index);
}

void load_optimizer(const CheckpointLoad& load) {
  if (load.parts.optimizer == nullptr) return;
  zero::ZeroOptimizer& optimizer = *load.parts.optimizer;
  bool has_masters = load.optimizer && wants_master(load), has_states = load.optimizer.has_value();
  if (load.optimizer) {
    for (size_t index = 0; index < optimizer.store().groups().size(); ++index) {
      const auto& group = load.optimizer->groups()[index];
      optimizer.state().change(index, [&](const zero::StateSlice& slice) {
        const bool found = load_slice(load, index, slice);
        has_masters = has_masters && found;  // a model in fp32 at stage 0 is saved without
      });
      has_states = has_states && (group.step > 0 || !group.states.empty());
    }
  }
  if (!has_masters) optimizer.state().restore_masters_from_model();
  if (has_states) optimizer.state().was_loaded();
}

// The model's weights are set from masters of another precision or of stage 3. Files of stage 3 hold no other
// weights. An engine of stage 3 sets them too: in fp32 its masters are the shards. Split masters exist only
// on their own rank. In fp32, weights that this rank has masters of were loaded with the masters, which may
// be in other memory.
void follow_masters(const CheckpointLoad& load) {
  if (!load.optimizer) return;
  zero::ZeroOptimizer& optimizer = *load.parts.optimizer;
  const bool come_from_elsewhere = load.parts.config.checkpoint.load_universal || is_of_other_precision(load);
  const bool are_weights = optimizer.store().dtype() == at::kFloat;
  if (load.is_sharded || come_from_elsewhere || load.parts.pool || optimizer.state().has_split_masters() ||
      are_weights)
    optimizer.state().publish_masters();
}

void load_rank_state(const CheckpointLoad& load) {
  if (!load.optimizer) return;
  zero::RankState own;
  if (load.run && load.has_own_run) own = {load.run->optimizer_ranks, load.run->optimizer_tensors};
  if (load.parts.optimizer->load_rank_state(own) || load.parts.groups.all.rank() != 0 ||
      !load.parts.optimizer->keeps_errors())
    return;
  log::info("[checkpoint] the compression errors of earlier exchanges are forgotten: ",
            own.num_ranks == 0 ? std::string("the checkpoint does not have them")
            : own.num_ranks == load.parts.data_group().size()
                ? std::string("the checkpoint has those of other buckets or nodes")
                : message("the checkpoint has those of ", own.num_ranks, " ranks, the engine has ",
                          load.parts.data_group().size()));
}

}  // namespace deepspeed
