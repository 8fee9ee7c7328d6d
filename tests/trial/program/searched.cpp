// A trial that tests/python/test_experiments.py searches over: a line fitted with the hyperparameters lr and momentum.
#include <torch/nn/modules/linear.h>

#include "deepspeed/deepspeed.h"
#include "deepspeed/pipe.h"
#include "deepspeed/trial.h"

namespace {

using namespace deepspeed;
using namespace deepspeed::trial;

struct Points {
  size_t size() const { return 64; }
  std::pair<at::Tensor, at::Tensor> get(size_t index) const {
    const at::Tensor x = at::full({1}, static_cast<double>(index % 16) / 16.0, at::kFloat);
    return {x, x * 3.0 - 1.0};
  }
};

class LineTrial : public DeepSpeedTrial {
 public:
  explicit LineTrial(DeepSpeedTrialContext& context) : context_(context) {
    const Json config = overwrite_deepspeed_config(
        Json{{"train_micro_batch_size_per_gpu", 4},
             {"optimizer", {{"type", "SGD"}, {"params", {{"lr", 0.1}}}}}},
        {{"optimizer",
          {{"params", {{"lr", context.get_hparam("lr")}, {"momentum", context.get_hparam("momentum")}}}}}});
    engine_ = context.wrap_model_engine(initialize(torch::nn::Linear(1, 1), {.config = config}).engine);
  }
  Metrics train_batch(const DataIterator& data, int64_t, int64_t) override {
    const at::Tensor loss = loss_of(*data.next());
    engine_->backward(loss);
    engine_->step();
    return {{"loss", loss}};
  }
  Metrics evaluate_batch(const DataIterator& data, int64_t) override {
    return {{"loss", loss_of(*data.next())}};
  }
  std::shared_ptr<DataLoader> build_training_data_loader() override {
    return make_data_loader(Points(), {.batch_size = 4, .shuffle = true});
  }
  std::shared_ptr<DataLoader> build_validation_data_loader() override {
    return make_data_loader(Points(), {.batch_size = 16});
  }

 private:
  at::Tensor loss_of(MicroBatch batch) {
    batch = context_.to_device(std::move(batch));
    return (engine_->forward(batch.inputs[0]) - batch.labels[0]).pow(2).mean();
  }

  DeepSpeedTrialContext& context_;
  std::shared_ptr<DeepSpeedEngine<torch::nn::LinearImpl>> engine_;
};

}  // namespace

int main() {
  DeepSpeedTrialContext context({.hparams = {{"lr", 0.1}, {"momentum", 0.0}}, .trial_seed = 1});
  LineTrial trial(context);
  Trainer(trial, context).fit({.max_length = Epoch(1)});
  comm::world().shutdown();
}
