#include "deepspeed/kernels/ops/rotary.h"

#include <cmath>

#include "deepspeed/base/error.h"

#include "tests/kernels/op_case.h"
#include "tests/support/error_of.h"

namespace deepspeed::kernels {
namespace {

/// Turns heads by the definition, in fp64.
at::Tensor rotary_reference(const at::Tensor& input, const at::Tensor& cos, const at::Tensor& sin,
                            RotaryPairs pairs) {
  const at::Tensor x = input.to(at::kDouble).contiguous();
  const int64_t half = cos.size(-1), dim = x.size(3);
  const auto table = [&](const at::Tensor& given) {
    const at::Tensor wide = given.to(at::kDouble);
    return wide.dim() == 3 ? wide.unsqueeze(1) : wide;
  };
  const bool neighbours = pairs == RotaryPairs::kNeighbours;
  const at::Tensor a = neighbours ? x.slice(3, 0, 2 * half, 2) : x.slice(3, 0, half);
  const at::Tensor b = neighbours ? x.slice(3, 1, 2 * half, 2) : x.slice(3, half, 2 * half);
  const at::Tensor first = a * table(cos) - b * table(sin), second = b * table(cos) + a * table(sin);
  const at::Tensor turned =
      neighbours ? at::stack({first, second}, -1).flatten(3) : at::cat({first, second}, 3);
  return at::cat({turned, x.slice(3, 2 * half, dim)}, 3);
}

TEST(Rotary, AgreesWithAReferenceForEveryDtypeSizeAndInstructionSet) {
  at::manual_seed(1);
  for_each_target([](const std::string& target) {
    for (const auto dtype : kOpDtypes) {
      for (const auto pairs : {RotaryPairs::kHalves, RotaryPairs::kNeighbours}) {
        for (const auto& [rotary, dim] : {std::pair<int64_t, int64_t>{2, 2}, {6, 9}, {64, 64}, {66, 130}}) {
          const at::Tensor input = at::randn({2, 3, 5, dim}).to(dtype);
          const RotaryTables tables = rotary_tables(5, rotary, 10000, at::kCPU);
          const auto table_dtype = rotary > 6 && dtype != at::kDouble ? at::kFloat : dtype;
          const at::Tensor cos = tables.cos.to(table_dtype), sin = tables.sin.to(table_dtype);
          const at::Tensor turned = rotary_embedding(input, cos, sin, pairs);
          expect_near_reference(turned, rotary_reference(input, cos, sin, pairs), 8, target);
          expect_near_reference(rotary_embedding(input, cos, sin, pairs, true),
                                rotary_reference(input, cos, -sin, pairs), 8, target + " backward");
        }
      }
    }
  });
}

TEST(Rotary, TakesTablesOfEachSequence) {
  const at::Tensor input = at::randn({2, 3, 4, 8}), cos = at::randn({2, 4, 3}), sin = at::randn({2, 4, 3});
  expect_near_reference(rotary_embedding(input, cos, sin, RotaryPairs::kHalves),
                        rotary_reference(input, cos, sin, RotaryPairs::kHalves), 32, "batch");
}

TEST(Rotary, ReadsTransposedHeadsWhereTheyLie) {
  const at::Tensor projected = at::randn({2, 7, 3, 24});  // [batch, positions, heads, dim]
  const RotaryTables tables = rotary_tables(7, 24, 10000, at::kCPU);
  const auto turn = [&](const at::Tensor& input) {
    return rotary_embedding(input, tables.cos, tables.sin, RotaryPairs::kHalves);
  };
  const at::Tensor heads = projected.transpose(1, 2);
  const at::Tensor turned = turn(heads);
  EXPECT_EQ(turned.strides(), heads.strides());
  EXPECT_TRUE(at::equal(turned, turn(heads.contiguous())));
  EXPECT_TRUE(at::equal(turned, turn(unaligned(heads.contiguous()))));
  EXPECT_TRUE(at::equal(turned, turn(heads.transpose(0, 3).contiguous().transpose(0, 3))));
  expect_equal_for_threads([&] { return turn(heads); });
}

TEST(RotaryTables, AreExactAtFarPositions) {
  const RotaryTables tables = rotary_tables(2, 4, 10000, at::kCPU, 1000000);
  EXPECT_NEAR(tables.cos[1][1].item<double>(), std::cos(1000001 * 0.01), 1e-7);
  EXPECT_NEAR(tables.sin[0][0].item<double>(), std::sin(1000000.0), 1e-7);
}

TEST(Rotary, NamesTheArgumentThatDoesNotFit) {
  const at::Tensor input = at::zeros({1, 2, 4, 8}), table = at::zeros({4, 4});
  const auto turn = [](const at::Tensor& x, const at::Tensor& cos, const at::Tensor& sin) {
    return rotary_embedding(x, cos, sin, RotaryPairs::kHalves);
  };
  EXPECT_ERROR(UsageError, turn(at::zeros({4, 8}), table, table), "input has shape [4, 8]");
  EXPECT_ERROR(UsageError, turn(input, at::zeros({5, 4}), table), "cos has shape [5, 4]", "[4, rotary / 2]");
  EXPECT_ERROR(UsageError, turn(input, at::zeros({4, 5}), at::zeros({4, 5})), "a rotary of at most 8");
  EXPECT_ERROR(UsageError, turn(input, table, at::zeros({4, 3})), "sin has shape [4, 3]");
  EXPECT_ERROR(UsageError, rotary_tables(4, 3, 10000, at::kCPU), "rotary is 3", "an even number");
}

}  // namespace
}  // namespace deepspeed::kernels
