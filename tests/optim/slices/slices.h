// A flat slice over a parameter, for the tests of optimizers.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include <ATen/ATen.h>

#include "deepspeed/optim/slices/optimizer.h"

namespace deepspeed::optim {

/// One slice of `numel` elements that is one parameter of shape (numel).
struct TestSlice {
  explicit TestSlice(const at::Tensor& weights, size_t id = 0)
      : segments{{0, {0, weights.numel()}, 0, weights.sizes().vec()}} {
    slice.id = id;
    slice.master = weights.reshape({-1}).clone();
    slice.segments = &segments;
  }
  TestSlice(const TestSlice&) = delete;
  TestSlice& operator=(const TestSlice&) = delete;

  void step(Optimizer& optimizer, const at::Tensor& gradient, double scale = 1.0) {
    slice.gradient = gradient.reshape({-1});
    optimizer.step(slice, scale);
  }

  std::vector<Segment> segments;
  FlatSlice slice;
};

inline std::vector<at::Tensor> test_gradients(int count, at::IntArrayRef shape) {
  std::vector<at::Tensor> gradients;
  const auto generator = at::detail::createCPUGenerator(17);
  for (int i = 0; i < count; ++i) gradients.push_back(at::randn(shape, generator, at::kFloat));
  return gradients;
}

}  // namespace deepspeed::optim
