// Common mistakes of programs. With MISTAKES the compiler must say of each what the line above it says, once
// and in few lines: check.sh reads them from here. Without it the program compiles, and shows what
// deepspeed/deepspeed.h alone has to say of all that initialize() returns.
#include <memory>
#include <string>
#include <vector>

#include <torch/data/example.h>
#include <torch/nn/modules/embedding.h>
#include <torch/nn/modules/linear.h>

#include "deepspeed/checkpointing.h"
#include "deepspeed/deepspeed.h"
#include "deepspeed/pipe.h"

namespace {

using at::Tensor;
using deepspeed::InitializeOptions;
using deepspeed::LayerSpec;
using deepspeed::PipelineEngine;
using deepspeed::TiedLayerSpec;
using deepspeed::checkpointing::checkpoint;
using deepspeed::pipe::DataIterator;

struct NetImpl : torch::nn::Module {
  Tensor forward(const Tensor& x, const Tensor& y) { return linear(x).mul(y).sum(); }
  torch::nn::Linear linear = register_module("linear", torch::nn::Linear(4, 1));
};
TORCH_MODULE(Net);

template <class Sample>
struct Samples {
  Sample get(size_t) const { return {}; }
  size_t size() const { return 2; }
};
struct Pair {
  Tensor x, y;
};

// No member that is used here needs a further header.
[[maybe_unused]] std::string use_what_initialize_returns(const InitializeOptions& options) {
  auto [engine, optimizer, loader, schedule] = deepspeed::initialize(Net(), Samples<Pair>(), options);
  for (auto& sample : *loader) {
    engine->backward(engine->forward(sample.x, sample.y));
    engine->step();
  }
  schedule->step();
  engine->monitor().write_events({});
  return optimizer->base_optimizer().name() + std::to_string(optimizer->loss_scaler().scale()) +
         std::to_string(optimizer->param_groups().front().lr() + schedule->get_lr().front()) +
         schedule->state_dict().dump() + engine->data_parallel_group().name() +
         std::to_string(engine->world().rank() + engine->memory().total() + loader->position()->epoch +
                        int64_t(engine->model().parameters.size()) + optimizer->memory().total());
}

// The operators and their modules are in deepspeed.h, so that no header of theirs can be forgotten.
[[maybe_unused]] Tensor use_operators(const Tensor& x) {
  namespace ops = deepspeed::ops;
  ops::RMSNorm norm(4);
  auto [normed, sum] = norm->add_and_norm(ops::swiglu(x), x);
  return ops::linear_cross_entropy(normed + sum, norm->weight, x);
}

#ifdef MISTAKES

// says: the model of initialize() is a std::shared_ptr to a module
void model_in_a_unique_ptr(const InitializeOptions& options) {
  auto [engine, optimizer, loader, schedule] = deepspeed::initialize(std::make_unique<NetImpl>(), options);
  engine->step();
}

// says: the model of initialize() is a std::shared_ptr to a module
void model_by_value(const NetImpl& model) {
  auto engine = deepspeed::initialize(model, Samples<Pair>(), {.config = deepspeed::Json()}).engine;
  engine->step();
}

// says: invalid initialization of reference of type 'deepspeed::InitializeOptions&&' from expression of type
void wrong_name_of_an_option(const deepspeed::Json& config) {
  auto engine = deepspeed::initialize(Net(), {.confg = config}).engine;
  engine->step();
}

// says: invalid initialization of reference of type 'deepspeed::InitializeOptions&&' from expression of type
void wrong_name_of_an_option_behind_a_data_set(const std::shared_ptr<deepspeed::PipelineModule>& model,
                                               const deepspeed::Json& config) {
  deepspeed::initialize(model, Samples<Pair>(), {.config = config, .optimiser = nullptr})
      .engine->train_batch();
}

// says: the options are missing: initialize(model, {.config = config}) or initialize(model, training_data
void data_set_where_options_belong() {
  auto [engine, optimizer, loader, schedule] = deepspeed::initialize(Net(), Samples<Pair>());
  for (auto& sample : *loader) engine->backward(engine->forward(sample.x, sample.y));
}

// says: the arguments of initialize() are the model, the training data, the options, collate_fn
void data_set_behind_the_options(const InitializeOptions& options) {
  deepspeed::initialize(Net(), options, Samples<Pair>()).engine->step();
}

// says: the config of initialize() is a member of its options: {.config = config}
void config_where_options_belong(const deepspeed::Json& config) {
  deepspeed::initialize(Net(), config).engine->step();
}

// says: the config of initialize() is a member of its options: {.config = config}
void path_of_a_config_behind_a_data_set() {
  deepspeed::initialize(Net(), Samples<Pair>(), "config.json").engine->step();
}

// says: of type 'deepspeed::NoTrainingDataWasGivenToInitialize' has incomplete type
void loop_over_a_loader_without_a_data_set(const InitializeOptions& options) {
  auto [engine, optimizer, loader, schedule] = deepspeed::initialize(Net(), options);
  for (auto& sample : *loader) {
    engine->backward(engine->forward(sample.x, sample.y));
    engine->step();
  }
}

// says: use of deleted function 'void deepspeed::begin(const std::shared_ptr<DeepSpeedDataLoader<
void loop_over_the_pointer_to_a_loader(const InitializeOptions& options) {
  auto loader = deepspeed::initialize(Net(), Samples<Pair>(), options).training_dataloader;
  for (auto& sample : loader) use_operators(sample.x);
}

// says: 'using element_type = struct deepspeed::NoTrainingDataWasGivenToInitialize'
int64_t member_of_a_loader_without_a_data_set(const InitializeOptions& options) {
  auto [engine, optimizer, loader, schedule] = deepspeed::initialize(Net(), options);
  return loader->position()->epoch;
}

// says: the model's forward() does not take these arguments
void one_argument_too_few_in_forward(const InitializeOptions& options) {
  auto engine = deepspeed::initialize(Net(), options).engine;
  const auto loss = engine->forward(Tensor());
  engine->backward(loss);
}

// says: the model's forward() does not take these arguments
struct TwoResultsImpl : torch::nn::Module {
  Pair forward(const Tensor& x, const Tensor& y) { return {x, y}; }
};
TORCH_MODULE(TwoResults);
void one_argument_too_few_for_two_results(const InitializeOptions& options) {
  auto engine = deepspeed::initialize(TwoResults(), options).engine;
  engine->backward((*engine)(Tensor()).x);
}

// says: LayerSpec::of<Module>(arguments...): the module has no public constructor
std::vector<LayerSpec> wrong_arguments_of_a_layer() {
  return {LayerSpec::of<torch::nn::Linear>("four", 4, 4)};
}

// says: TiedLayerSpec::of<Module>(key, arguments...): the module has no public constructor
TiedLayerSpec wrong_arguments_of_a_tied_layer() {
  return TiedLayerSpec::of<torch::nn::Embedding>("words", "100", "four");
}

// says: LayerSpec only supports torch::nn::Module types
LayerSpec layer_that_is_no_module() { return LayerSpec::of<std::vector<int>>(4); }

// says: a layer is a std::shared_ptr to a module
std::vector<LayerSpec> layer_in_a_unique_ptr() { return {std::make_unique<torch::nn::LinearImpl>(4, 4)}; }

// says: a batch of a pipeline has two parts, inputs and labels
struct DataTargetMask {
  Tensor data, target, mask;
};
Tensor batch_of_data_target_and_mask(PipelineEngine& engine) {
  return engine.train_batch([] { return DataTargetMask(); });
}

// says: a batch of a pipeline has two parts, inputs and labels
struct FirstSecondThird {
  Tensor first, second, third;
};
Tensor batch_of_first_second_and_third(PipelineEngine& engine, std::vector<FirstSecondThird>& batches) {
  return engine.train_batch(DataIterator::over(batches));
}

// says: a batch of a pipeline has two parts, inputs and labels
struct ExampleAndMask : torch::data::Example<> {
  Tensor mask;
};
Tensor batch_of_an_example_and_a_mask(PipelineEngine& engine) {
  return engine.train_batch([] { return ExampleAndMask(); });
}

// says: a batch of a pipeline has two parts, inputs and labels
struct TargetDataMask {
  Tensor target, data, mask;
};
void data_set_of_target_data_and_mask(const std::shared_ptr<deepspeed::PipelineModule>& model,
                                      const InitializeOptions& options) {
  deepspeed::initialize(model, Samples<TargetDataMask>(), options).engine->train_batch();
}

// says: the function does not take these arguments
Tensor one_argument_too_few_in_checkpoint(const Tensor& x) {
  return checkpoint(
      {.name = "layer 3"}, [](const Tensor& a, const Tensor& b) { return a + b; }, x);
}

// says: the function does not take these arguments
Tensor function_behind_its_argument(const Tensor& x) {
  return checkpoint(x, [](const Tensor& a) { return a; });
}

#endif

}  // namespace

int main() {}
