// One short training of OddNet as a value: what was asked for, and every loss and weight that came of it.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "deepspeed/base/json.h"
#include "deepspeed/comm/init.h"

namespace deepspeed::testing {

struct TrainingSpec {
  int world_size = 1;
  int64_t micro_batch = 4;
  int64_t accumulation = 1;
  int steps = 6;
  double dropout = 0.0;
  bool direct_backward = false;  // loss.backward() instead of engine.backward(loss)
  Json config = Json::object();  // merged over {optimizer AdamW, gradient_clipping 0}
};

struct TrainingResult {
  std::vector<double> losses;  // of rank 0, one a micro step
  std::vector<float> weights;  // all parameters in order of registration, after the last step
  std::vector<double> norms;   // one a step, -1 where there is none
};

/// Trains on ranks that are kept for the next training of their number. All ranks must end with the same
/// weights, else the test fails.
TrainingResult run_training(const TrainingSpec& spec);

/// The largest |a - b| / (|b| + floor) over all elements; infinite where the sizes differ.
double largest_relative_difference(const std::vector<float>& a, const std::vector<float>& b,
                                   double floor = 1e-6);
double largest_relative_difference(const std::vector<double>& a, const std::vector<double>& b,
                                   double floor = 1e-9);

}  // namespace deepspeed::testing
