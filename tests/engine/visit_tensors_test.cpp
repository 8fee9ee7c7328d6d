#include "deepspeed/engine/visit_tensors.h"

#include <ATen/ops/ones.h>

#include <gtest/gtest.h>

namespace deepspeed {
namespace {

struct Inner {
  at::Tensor a;
  int64_t count = 0;
};
struct Output {
  std::optional<at::Tensor> maybe;
  std::vector<at::Tensor> many;
  Inner inner;
  std::pair<at::Tensor, std::string> pair;
  std::map<std::string, at::Tensor> named;
};
class Closed {
 public:
  at::Tensor hidden = at::ones({1});
  template <class Visitor>
  friend void visit_tensors(Closed& value, Visitor&& visitor) {
    visitor(value.hidden);
  }
};

template <class T>
int count(T value) {
  int found = 0;
  visit_tensors(value, [&](at::Tensor&) { ++found; });
  return found;
}

TEST(VisitTensors, FindsThemInNestedTypes) {
  const at::Tensor one = at::ones({1});
  EXPECT_EQ(count(one), 1);
  EXPECT_EQ(count(Output{one, {one, one}, {one, 3}, {one, "x"}, {{"k", one}}}), 6);
  EXPECT_EQ(count(Output{std::nullopt, {}, {one}, {one, ""}, {}}), 2);
  EXPECT_EQ(count(std::make_tuple(one, 1.5, one)), 2);
}

TEST(VisitTensors, TakesAFunctionThatTheTypeBrings) {
  Closed value;
  int found = 0;
  visit_tensors(value, [&](at::Tensor& tensor) {
    tensor = tensor.add(1);
    ++found;
  });
  EXPECT_EQ(found, 1);
  EXPECT_EQ(value.hidden.item<double>(), 2.0);
}

}  // namespace
}  // namespace deepspeed
