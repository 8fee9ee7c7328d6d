// A PipelineModule is made in four steps. The layers are divided among stages. Those of this stage are built
// in order, which determines their random numbers. Their models are joined into one (stage_model.h), whose
// files layer_files.cpp describes. Weights that other stages also hold are noted.
#include "deepspeed/pipe/module/pipeline_module.h"

#include <algorithm>
#include <ranges>
#include <sstream>

#include <ATen/ops/tensor.h>

#include "deepspeed/activation/checkpointing.h"
#include "deepspeed/autograd/error_place.h"
#include "deepspeed/base/error.h"
#include "deepspeed/base/text.h"
#include "deepspeed/device/accelerator/rng.h"
#include "deepspeed/pipe/module/layer_times.h"
#include "deepspeed/pipe/module/stage_model.h"

namespace deepspeed::pipe {
namespace {

int64_t trained_elements(const EngineModel& model) {
  int64_t count = 0;
  for (const NamedTensor& param : model.parameters) {
    if (param.tensor.requires_grad()) count += param.tensor.numel();
  }
  return count;
}

comm::World world_of(const PipelineModuleOptions& options) {
  return options.world ? options.world : comm::init_distributed();
}

ProcessTopology topology_of(const PipelineModuleOptions& options, int num_ranks) {
  if (options.topology) {
    if (options.num_stages && *options.num_stages != options.topology->get_dim("pipe")) {
      raise<UsageError>("num_stages is ", *options.num_stages, ", but the axis \"pipe\" of `topology` has ",
                        options.topology->get_dim("pipe"), "; give one of them");
    }
    if (options.topology->world_size() == num_ranks) return *options.topology;
    raise<UsageError>("topology has ", options.topology->world_size(), " ranks, expected ", num_ranks,
                      ", the ranks of the job");
  }
  if (!options.num_stages) raise<UsageError>("must provide num_stages or topology");
  const int num_stages = *options.num_stages;
  if (num_stages < 1 || num_ranks % num_stages != 0) {
    raise<UsageError>("num_stages is ", num_stages, ", which does not divide the ", num_ranks,
                      " ranks of the job; each stage has as many ranks as the others");
  }
  return PipeDataParallelTopology(num_stages, num_ranks / num_stages);
}

PipelineModuleOptions with_defaults(PipelineModuleOptions options) {
  options.world = world_of(options);
  options.topology = topology_of(options, options.world.size());
  if (options.model_chunks < 1)
    raise<UsageError>("model_chunks is ", options.model_chunks, ", expected 1 or more");
  if (options.activation_checkpoint_interval < 0) {
    raise<UsageError>("activation_checkpoint_interval is ", options.activation_checkpoint_interval,
                      ", expected 0 (nothing is recomputed) or more");
  }
  return options;
}

std::string shapes_of(const Tensors& tensors) {
  std::ostringstream text;
  for (const at::Tensor& tensor : tensors) {
    if (&tensor != &tensors.front()) text << ", ";
    if (tensor.defined()) {
      text << tensor.sizes() << " " << tensor.scalar_type();
    } else {
      text << "an undefined tensor";
    }
  }
  return text.str();
}

}  // namespace

PipelineModule::PipelineModule(const torch::nn::Sequential& layers, PipelineModuleOptions options)
    : PipelineModule(layers_of(layers), std::move(options)) {}

PipelineModule::PipelineModule(std::vector<LayerSpec> layers, PipelineModuleOptions options)
    : options_(with_defaults(std::move(options))),
      specs_(std::move(layers)),
      ranks_(*options_.topology, options_.world.rank()) {
  for (const LayerSpec& spec : specs_) class_names_.push_back(spec.class_name());
  find_ties();
  parts_ = partition();
  build_layers();
  specs_.clear();
  if (options_.front_end) {
    model_ = options_.front_end->model;
  } else {
    model_ = join_models(layers_);
  }
  describe_files();
  find_tied_weights();
  find_weights_of_other_slices();
}

Parts PipelineModule::partition() const {
  if (options_.front_end) return options_.front_end->parts;
  const int num_parts = num_stages() * model_chunks();
  if (model_chunks() > 1 && num_layers() < num_parts) {
    raise<UsageError>("model_chunks is ", model_chunks(), ", which cuts the ", num_layers(), " layers into ",
                      num_parts, " parts on ", num_stages(), " stages; take fewer chunks or stages");
  }
  return partition_layers(costs(), num_parts, options_.partition_method);
}

void PipelineModule::find_ties() {
  for (size_t layer = 0; layer < specs_.size(); ++layer) {
    const auto& tie = specs_[layer].tie();
    if (!tie) continue;
    TiedLayers& tied = ties_[tie->key];
    tied.layers.push_back(int(layer));
    const bool has_file = tied.stored_as >= 0 && !specs_[size_t(tied.stored_as)].tie()->has_forward_fn;
    if (tied.stored_as < 0 || (!has_file && !tie->has_forward_fn)) tied.stored_as = int(layer);
    tied.weight_attrs.insert(tie->weight_attrs.begin(), tie->weight_attrs.end());
  }
  for (const auto& [key, tied] : ties_) {
    // DeepSpeed's programs may give a key to a single layer.
    if (tied.layers.size() > 1 || options_.front_end) continue;
    raise<UsageError>("the tied key '", key, "' is that of ", describe_layer(tied.layers.front()),
                      " alone, expected two or more layers; make it a LayerSpec, or correct the key");
  }
}

/// Returns what options_.partition_method needs of each layer. To count elements, layers without a module are
/// built once, one after the other, and dropped. This consumes the same random numbers as in DeepSpeed.
std::vector<LayerCost> PipelineModule::costs() const {
  std::vector<LayerCost> costs;
  for (const std::string& name : class_names_) costs.push_back({name, 0, 0.0});
  const std::string method = lowercase(options_.partition_method);
  if (method == "parameters") {
    for (size_t layer = 0; layer < specs_.size(); ++layer)
      costs[layer].parameters = trained_elements(built(int(layer)).model);
  }
  if (method == "profile") {
    const std::vector<double> times = measure_layers();
    for (size_t layer = 0; layer < specs_.size(); ++layer) costs[layer].seconds = times[layer];
  }
  return costs;
}

std::vector<double> PipelineModule::measure_layers() const {
  if (options_.profile_inputs.empty()) {
    raise<UsageError>(
        "partition_method \"profile\" needs profile_inputs: inputs of the first layer, of the shapes of a "
        "micro batch");
  }
  std::vector<double> times(specs_.size());
  const comm::World& world = options_.world;
  if (world.rank() == 0) times = time_layers(specs_, options_.profile_inputs);
  const at::Tensor shared = at::tensor(times, at::kDouble);
  world.group().broadcast(shared, 0);
  return {shared.const_data_ptr<double>(), shared.const_data_ptr<double>() + shared.numel()};
}

void PipelineModule::build_layers() {
  for (int chunk = 0; chunk < model_chunks(); ++chunk) {
    const size_t part = size_t(chunk * num_stages() + stage_id());
    const size_t first = layers_.size();
    for (int layer = parts_[part]; layer < parts_[part + 1]; ++layer) build_layer(layer);
    chunks_.emplace_back(first, layers_.size());
    num_forwards_.push_back(0);
  }
}

void PipelineModule::build_layer(int index) {
  if (options_.seed_layers) seed_for(int64_t(options_.base_seed) + index);
  const LayerSpec& spec = specs_[size_t(index)];
  if (!spec.tie()) {
    layers_.push_back({.index = index, .prefix = std::to_string(index), .layer = built(index)});
    return;
  }
  const Tie& tie = *spec.tie();
  auto found = tied_modules_.find(tie.key);
  if (found == tied_modules_.end()) {
    TiedModule made =
        autograd::with_place([&] { return tie.make(); }, [&] { return construction_of(index); });
    found = tied_modules_.emplace(tie.key, std::move(made)).first;
  }
  const TiedModule& tied = found->second;
  layers_.push_back({index,
                     "tied_modules." + tie.key,
                     {tied.class_name, tie.bind(tied), tied.model},
                     tie.key,
                     tie.has_forward_fn});
}

void PipelineModule::find_tied_weights() {
  for (const auto& [key, tied] : tied_modules_) {
    std::vector<int> stages;
    for (const int layer : ties_.at(key).layers) stages.push_back(stage_of(layer));
    std::ranges::sort(stages);
    stages.erase(std::unique(stages.begin(), stages.end()), stages.end());
    if (stages.size() < 2) continue;
    for (const std::string& attr : ties_.at(key).weight_attrs) {
      const auto weight = std::ranges::find(tied.model.parameters, attr, &NamedTensor::name);
      if (weight == tied.model.parameters.end()) {
        raise<UsageError>("tied_weight_attr of the key '", key, "': ", tied.class_name, " has no parameter '",
                          attr, "'");
      }
      tied_weights_.push_back({key, "tied_modules." + key + "." + attr, weight->tensor, stages});
      if (stages.front() != stage_id()) model_.counted_elsewhere.push_back(weight->tensor);
    }
  }
}

void PipelineModule::find_weights_of_other_slices() {
  if (ranks_.slice_parallel_size() == 1) return;
  const auto& is_part = options_.is_model_parallel_parameter;
  for (const NamedTensor& param : model_.parameters) {
    if (!is_part || !is_part(param.tensor)) model_.alike_on_slices.push_back(param);
  }
}

int PipelineModule::stage_of(int layer) const {
  const auto next = std::ranges::upper_bound(parts_, layer);
  return int(next - parts_.begin() - 1) % num_stages();
}

std::string PipelineModule::describe_layer(int layer) const {
  return message("layer ", layer, " (", class_names_[size_t(layer)], ")");
}

std::string PipelineModule::place_of(int layer) const {
  return message(describe_layer(layer), " of stage ", stage_of(layer), " of ", num_stages());
}

std::string PipelineModule::construction_of(int layer) const {
  return message("the constructor of ", describe_layer(layer));
}

Layer PipelineModule::built(int index) const {
  return autograd::with_place([&] { return specs_[size_t(index)].build(); },
                              [&] { return construction_of(index); });
}

std::vector<at::Tensor> PipelineModule::parameters() const {
  std::vector<at::Tensor> tensors;
  for (const NamedTensor& param : model_.parameters) tensors.push_back(param.tensor);
  return tensors;
}

// --- running ---

void PipelineModule::seed_for(int64_t number) const {
  if (options_.seed_fn) {
    options_.seed_fn(uint64_t(number));
  } else {
    device::seed_generators(uint64_t(number));
  }
}

Tensors PipelineModule::forward(const Tensors& inputs, int chunk) {
  const auto [first, last] = chunks_.at(size_t(chunk));
  micro_offset_ = ++num_forwards_[size_t(chunk)];
  if (options_.front_end) return options_.front_end->forward(chunk, inputs);
  const size_t interval = size_t(options_.activation_checkpoint_interval);
  if (interval == 0) return run_layers(first, last, inputs);
  Tensors values = inputs;
  for (size_t begin = first; begin < last; begin += interval) {
    const size_t end = std::min(begin + interval, last);
    if (!is_checkpointable(begin, end)) {
      values = run_layers(begin, end, values);
      continue;
    }
    // The layers use the seeds of this forward, also when it is recomputed.
    const auto run = [this, begin, end, offset = micro_offset_](const Tensors& block_inputs) {
      const int64_t now = std::exchange(micro_offset_, offset);
      Tensors outputs = run_layers(begin, end, block_inputs);
      micro_offset_ = now;
      return outputs;
    };
    values = options_.activation_checkpoint_func
                 ? options_.activation_checkpoint_func(run, values)
                 : checkpointing::checkpoint_tensors(run, values, {.name = name_of_layers(begin, end)});
  }
  return values;
}

std::string PipelineModule::name_of_layers(size_t first, size_t last) const {
  const int begin = layers_[first].index, end = layers_[last - 1].index;
  return begin == end ? message("layer ", begin) : message("layers ", begin, " to ", end);
}

bool PipelineModule::is_trained(int chunk) const {
  const auto needs_gradient = [](const EngineModel& model) {
    return std::ranges::any_of(model.parameters,
                               [](const NamedTensor& param) { return param.tensor.requires_grad(); });
  };
  if (options_.front_end) return options_.model_chunks == 1 && needs_gradient(model_);
  const auto [first, last] = chunks_.at(size_t(chunk));
  return std::any_of(layers_.begin() + long(first), layers_.begin() + long(last),
                     [&](const StageLayer& layer) { return needs_gradient(layer.layer.model); });
}

bool PipelineModule::is_checkpointable(size_t first, size_t last) const {
  const auto& names = options_.checkpointable_layers;
  const auto range = std::ranges::subrange(layers_.begin() + long(first), layers_.begin() + long(last));
  if (names.empty())
    return std::ranges::any_of(range,
                               [](const StageLayer& layer) { return !layer.layer.model.parameters.empty(); });
  return std::ranges::all_of(range, [&](const StageLayer& layer) {
    return std::ranges::any_of(names, [&](const std::string& name) {
      return layer.layer.class_name.find(name) != std::string::npos;
    });
  });
}

Tensors PipelineModule::run_layers(size_t first, size_t last, const Tensors& inputs) {
  Tensors values = inputs;
  for (size_t position = first; position < last; ++position) values = run_layer(position, values);
  return values;
}

Tensors PipelineModule::run_layer(size_t position, const Tensors& inputs) {
  const StageLayer& layer = layers_[position];
  // The first forward counts as the second one, as in DeepSpeed.
  if (options_.seed_layers) seed_for(int64_t(options_.base_seed) * (micro_offset_ + 1) + layer.index);
  return autograd::with_place(
      [&] { return layer.layer.forward(inputs); },
      [&] {
        return message(place_of(layer.index), ", which was given ", shapes_of(inputs), ", ",
                       layer.index == 0 ? "the inputs of the micro batch"
                                        : message("what ", describe_layer(layer.index - 1), " gives"));
      });
}

at::Tensor PipelineModule::loss(const Tensors& outputs, const Tensors& labels) {
  at::Tensor loss;
  if (options_.loss_fn && options_.front_end) {
    loss = options_.loss_fn(outputs, labels);  // a front end's errors name the place themselves
  } else if (options_.loss_fn) {
    loss =
        autograd::with_place([&] { return options_.loss_fn(outputs, labels); },
                             [&] {
                               return message("loss_fn of the PipelineModule, which was given the outputs ",
                                              shapes_of(outputs), " and the labels ", shapes_of(labels));
                             });
  } else if (outputs.size() == 1) {
    loss = outputs.front();
  }
  if (!loss.defined() || loss.numel() != 1) {
    raise<UsageError>(
        options_.loss_fn ? "loss_fn" : message("the last layer, ", describe_layer(num_layers() - 1), ","),
        " gives ", loss.defined() ? shapes_of({loss}) : shapes_of(outputs), ", expected a scalar",
        options_.loss_fn ? "" : ": give the PipelineModule a loss_fn");
  }
  if (options_.additional_losses) {
    for (const auto& [name, value] : options_.additional_losses()) {
      at::Tensor& sum = additional_losses_[name];
      sum = sum.defined() ? sum + value.detach() : value.detach();
    }
  }
  return loss;
}

}  // namespace deepspeed::pipe
