#include "tests/pipe/engine/small_pipeline.h"

#include <torch/nn/functional/loss.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/embedding.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/modules/normalization.h>

namespace deepspeed::testing {
namespace {

constexpr int64_t kWords = 11, kWidth = 12, kLength = 5, kMicroBatch = 2;

// Norm, linear, tanh, linear, with a residual connection.
struct SmallBlockImpl : torch::nn::Module {
  explicit SmallBlockImpl(int64_t width)
      : norm(register_module("norm", torch::nn::LayerNorm(torch::nn::LayerNormOptions({width})))),
        up(register_module("up", torch::nn::Linear(width, 2 * width))),
        down(register_module("down", torch::nn::Linear(2 * width, width))) {}
  at::Tensor forward(const at::Tensor& hidden) { return hidden + down(at::tanh(up(norm(hidden)))); }
  torch::nn::LayerNorm norm;
  torch::nn::Linear up, down;
};
TORCH_MODULE(SmallBlock);

}  // namespace

std::vector<LayerSpec> small_layers(const PipelineRun& run) {
  std::vector<LayerSpec> layers;
  if (run.is_tied) {
    layers.push_back(TiedLayerSpec::of<torch::nn::Embedding>("words", kWords, kWidth));
  } else {
    layers.push_back(LayerSpec::of<torch::nn::Embedding>(kWords, kWidth));
  }
  for (int i = 0; i < 6; ++i) layers.push_back(LayerSpec::of<SmallBlock>(kWidth));
  if (run.is_tied) {
    layers.push_back(TiedLayerSpec::of<torch::nn::Embedding>("words", kWords, kWidth)
                         .forward_fn([](torch::nn::EmbeddingImpl& words, const at::Tensor& hidden) {
                           return at::matmul(hidden, words.weight.t());
                         }));
  } else {
    layers.push_back(LayerSpec::of<torch::nn::Linear>(kWidth, kWords));
  }
  return layers;
}

at::Tensor small_loss(const at::Tensor& logits, const at::Tensor& labels) {
  return torch::nn::functional::cross_entropy(logits.reshape({-1, kWords}).to(at::kFloat),
                                              labels.reshape({-1}));
}

std::vector<pipe::MicroBatch> small_batches(const PipelineRun& run, int step, int data_rank) {
  std::vector<pipe::MicroBatch> batches;
  for (int i = 0; i < run.micro_batches; ++i) {
    auto generator = at::detail::createCPUGenerator(uint64_t(1000 * step + 10 * i + data_rank));
    const at::Tensor words = at::randint(0, kWords, {kMicroBatch, kLength + 1}, generator, at::kLong);
    batches.push_back({{words.slice(1, 0, kLength).contiguous()}, {words.slice(1, 1).contiguous()}});
  }
  return batches;
}

Json small_config(const PipelineRun& run) {
  Json config = {{"train_micro_batch_size_per_gpu", kMicroBatch},
                 {"gradient_accumulation_steps", run.micro_batches},
                 {"steps_per_print", 1000},
                 {"gradient_clipping", run.clipping},
                 {"zero_optimization", {{"stage", run.zero_stage}}},
                 {"pipeline", {{"schedule", run.schedule}, {"model_chunks", run.model_chunks}}},
                 {"optimizer", run.optimizer}};
  if (run.precision == "bf16") config["bf16"] = {{"enabled", true}};
  if (run.precision == "fp16") config["fp16"] = {{"enabled", true}, {"initial_scale_power", 8}};
  if (run.precision == "autocast") config["torch_autocast"] = {{"enabled", true}, {"dtype", "bfloat16"}};
  return config;
}

std::shared_ptr<PipelineModule> small_module(const PipelineRun& run) {
  return std::make_shared<PipelineModule>(
      small_layers(run), PipelineModuleOptions{.num_stages = run.num_stages,
                                               .loss_fn = small_loss,
                                               .seed_layers = true,
                                               .partition_method = run.partition_method,
                                               .activation_checkpoint_interval = run.checkpoint_interval,
                                               .model_chunks = run.model_chunks});
}

std::vector<double> train_on(PipelineEngine& engine, const PipelineRun& run, int first_step, int last_step) {
  std::vector<double> losses;
  for (int step = first_step; step < last_step; ++step) {
    const auto batches = small_batches(run, step, engine.get_data_parallel_rank());
    losses.push_back(engine.train_batch(pipe::DataIterator::over(batches)).item<double>());
  }
  return losses;
}

std::vector<double> train_pipeline(const PipelineRun& run) {
  const auto engine = initialize(small_module(run), {.config = small_config(run)}).engine;
  return train_on(*engine, run, 0, run.steps);
}

namespace {

// Holds all layers as one module, for an engine of the whole model.
struct WholeModel : torch::nn::Module {
  explicit WholeModel(const PipelineRun& run) {
    int64_t index = 0;
    for (const LayerSpec& spec : small_layers(run)) {
      manual_seed(uint64_t(1234 + index));
      if (!spec.tie()) {
        layers.push_back(spec.build());
      } else {
        if (!tied) tied = spec.tie()->make();
        layers.push_back(
            {tied->class_name, spec.tie()->bind(*tied), index == 0 ? tied->model : EngineModel()});
      }
      for (const NamedTensor& param : layers.back().model.parameters) {
        std::string name = std::to_string(index) + "_" + param.name;
        std::ranges::replace(name, '.', '_');
        register_parameter(name, param.tensor);
      }
      ++index;
    }
  }
  at::Tensor forward(const at::Tensor& words) {
    pipe::Tensors values = {words};
    for (pipe::Layer& layer : layers) values = layer.forward(values);
    return values.front();
  }
  std::vector<pipe::Layer> layers;
  std::optional<pipe::TiedModule> tied;
};

}  // namespace

std::vector<double> train_whole(const PipelineRun& run, int data_ranks) {
  Json config = small_config(run);
  config.erase("pipeline");
  config["gradient_accumulation_steps"] = run.micro_batches * data_ranks;
  config["zero_optimization"]["stage"] = 0;
  const auto engine = initialize(std::make_shared<WholeModel>(run), {.config = config}).engine;
  std::vector<double> losses;
  for (int step = 0; step < run.steps; ++step) {
    double sum = 0;
    for (int rank = 0; rank < data_ranks; ++rank) {
      float of_rank = 0;
      for (const pipe::MicroBatch& batch : small_batches(run, step, rank)) {
        const at::Device device = engine->device();
        const at::Tensor loss =
            small_loss((*engine)(batch.inputs.front().to(device)), batch.labels.front().to(device));
        engine->backward(loss);
        engine->step();
        of_rank += loss.item<float>();
      }
      sum += of_rank / float(run.micro_batches);
    }
    losses.push_back(sum / data_ranks);
  }
  return losses;
}

}  // namespace deepspeed::testing
