#include "tests/support/training_run.h"

#include <cmath>
#include <cstring>
#include <limits>

#include <gtest/gtest.h>

#include "deepspeed/initialize.h"
#include "deepspeed/zero/gathered_parameters.h"

#include "tests/support/odd_net.h"
#include "tests/support/run_ranks.h"

namespace deepspeed::testing {
namespace {

template <class T>
void append(std::string& bytes, const std::vector<T>& values) {
  const uint64_t count = values.size();
  bytes.append(reinterpret_cast<const char*>(&count), sizeof(count));
  bytes.append(reinterpret_cast<const char*>(values.data()), count * sizeof(T));
}

template <class T>
std::vector<T> take(const std::string& bytes, size_t& offset) {
  uint64_t count = 0;
  std::memcpy(&count, bytes.data() + offset, sizeof(count));
  offset += sizeof(count);
  std::vector<T> values(count);
  std::memcpy(values.data(), bytes.data() + offset, count * sizeof(T));
  offset += count * sizeof(T);
  return values;
}

Json full_config(const TrainingSpec& spec) {
  Json config = {{"train_micro_batch_size_per_gpu", spec.micro_batch},
                 {"gradient_accumulation_steps", spec.accumulation},
                 {"gradient_clipping", 0.0},
                 {"optimizer", {{"type", "AdamW"}, {"params", {{"lr", 0.01}, {"weight_decay", 0.1}}}}}};
  config.merge_patch(spec.config);
  return config;
}

std::string train(const TrainingSpec& spec, const comm::World& world) {
  auto model = std::make_shared<OddNet>(spec.dropout, /*seed=*/1 + static_cast<uint64_t>(world.rank()));
  auto [engine, optimizer, loader, scheduler] =
      initialize(model, {.config = full_config(spec), .world = world});
  TrainingResult result;
  int64_t micro_step = 0;
  for (int step = 0; step < spec.steps; ++step) {
    for (int64_t k = 0; k < spec.accumulation; ++k, ++micro_step) {
      const int64_t first = (micro_step * world.size() + world.rank()) * spec.micro_batch;
      const auto [inputs, targets] = odd_batch(first, spec.micro_batch);
      const at::Tensor loss = engine->forward(inputs.to(model->parameters().front().scalar_type()), targets);
      if (spec.direct_backward) {
        loss.backward();
      } else {
        engine->backward(loss);
      }
      engine->step();
      result.losses.push_back(loss.item<double>());
    }
    result.norms.push_back(engine->get_global_grad_norm().value_or(-1.0));
  }
  const zero::GatheredParameters gathered(model->parameters());
  for (const auto& param : model->parameters()) {
    const at::Tensor values = param.detach().to(at::kFloat).contiguous();
    result.weights.insert(result.weights.end(), values.const_data_ptr<float>(),
                          values.const_data_ptr<float>() + values.numel());
  }
  std::string bytes;
  append(bytes, result.weights);
  append(bytes, result.losses);
  append(bytes, result.norms);
  return bytes;
}

template <class T>
double largest_difference(const std::vector<T>& a, const std::vector<T>& b, double floor) {
  if (a.size() != b.size()) return std::numeric_limits<double>::infinity();
  double largest = 0.0;
  for (size_t i = 0; i < a.size(); ++i) {
    const double x = a[i], y = b[i];
    if (std::isnan(x) || std::isnan(y)) return std::numeric_limits<double>::infinity();
    largest = std::max(largest, std::abs(x - y) / (std::abs(y) + floor));
  }
  return largest;
}

}  // namespace

TrainingResult run_training(const TrainingSpec& spec) {
  const std::vector<std::string> ranks =
      run_ranks_collect(spec.world_size, [&](comm::World& world) { return train(spec, world); });
  TrainingResult result;
  for (size_t rank = 0; rank < ranks.size(); ++rank) {
    if (ranks[rank].empty()) {
      ADD_FAILURE() << "rank " << rank << " returned nothing";
      return {};
    }
    size_t offset = 0;
    const auto weights = take<float>(ranks[rank], offset);
    if (rank == 0) {
      result.weights = weights;
      result.losses = take<double>(ranks[rank], offset);
      result.norms = take<double>(ranks[rank], offset);
    }
    EXPECT_EQ(weights, result.weights) << "rank " << rank << " ends with other weights than rank 0";
  }
  return result;
}

double largest_relative_difference(const std::vector<float>& a, const std::vector<float>& b, double floor) {
  return largest_difference(a, b, floor);
}

double largest_relative_difference(const std::vector<double>& a, const std::vector<double>& b, double floor) {
  return largest_difference(a, b, floor);
}

}  // namespace deepspeed::testing
