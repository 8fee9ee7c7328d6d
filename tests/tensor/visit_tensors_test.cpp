#include "deepspeed/tensor/visit_tensors.h"

#include <ATen/ops/ones.h>
#include <torch/data/example.h>

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

struct WithMask {
  at::Tensor data, target, mask;
};
struct Classified {
  at::Tensor data;
  torch::data::Example<at::Tensor, int64_t> target;
};
struct Renamed : torch::data::Example<> {
  using torch::data::Example<>::Example;
};
struct Sixteen {
  at::Tensor a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p;
};
struct Seventeen {
  at::Tensor a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q;
};
struct ByReference {
  at::Tensor& value;
  at::Tensor other;
};
struct Derived : Inner {
  at::Tensor more;
};
struct Empty {};

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

TEST(VisitTensors, LosesNoMemberBesideDataAndTarget) {
  const at::Tensor one = at::ones({1});
  EXPECT_EQ(count(WithMask{one, one, one}), 3);
  EXPECT_EQ(count(Classified{one, {one, 3}}), 2);
}

TEST(VisitTensors, KnowsTheExamplesOfTorch) {
  const at::Tensor one = at::ones({1});
  EXPECT_EQ(count(torch::data::Example<>(one, one)), 2);
  EXPECT_EQ(count(torch::data::Example<at::Tensor, int64_t>(one, 3)), 1);
  EXPECT_EQ(count(torch::data::TensorExample(one)), 1);
  EXPECT_EQ(count(Renamed(one, one)), 2);
}

TEST(VisitTensors, TakesStructsOfSixteenMembersAndNoneWhoseMembersItCannotSee) {
  const at::Tensor one = at::ones({1});
  EXPECT_EQ(count(Sixteen{one, one, one, one, one, one, one, one, one, one, one, one, one, one, one, one}),
            16);
  EXPECT_EQ(count(Empty()), 0);
  // What is no HasMembersToTie stops with the static_assert of visit_tensors().
  EXPECT_FALSE(visit_detail::HasMembersToTie<Seventeen>);
  EXPECT_FALSE(visit_detail::HasMembersToTie<ByReference>);
  EXPECT_FALSE(visit_detail::HasMembersToTie<Derived>);
  EXPECT_FALSE(visit_detail::HasMembersToTie<std::unique_ptr<Inner>>);
}

struct Notes {
  std::string seen = {};
  void operator()(at::Tensor&) { seen += "t"; }
  void other(const std::string& text) { seen += text; }
  template <class T>
  void other(const T& value) {
    seen += std::to_string(value);
  }
};

TEST(VisitTensors, TellsAVisitorThatAsksWhatElseIsThere) {
  Notes visitor;
  const at::Tensor one = at::ones({1});
  Output value{one, {one, one}, {one, 7}, {one, "x"}, {{"k", one}}};
  visit_tensors(value, visitor);
  EXPECT_EQ(visitor.seen, "1t2ttt7tx1kt");
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
