#include "deepspeed/zero/access/param_table.h"

#include <gtest/gtest.h>

#include "deepspeed/base/error.h"

#include "tests/support/error_of.h"
#include "tests/zero/access/poolless_params.h"

namespace deepspeed::zero {
namespace {

using Params = std::vector<Gatherable*>;

class ParamTableTest : public ::testing::Test {
 protected:
  Gatherable& add(const std::string& name, int64_t numel, PartitionedTraits traits = {}) {
    Gatherable& param = made.add(name, numel, traits);
    table.add(param);
    return param;
  }

  testing::PoollessParams made;
  ParamTable table;
};

TEST_F(ParamTableTest, FindsParametersCopiesAndUnitsByTheirKeys) {
  Gatherable &a = add("a", 3), &b = add("b", 5), &c = add("c", 7), &alone = add("d", 1);
  const GatherUnit& first = table.join("leaf 'x'", {&a, &b});
  const GatherUnit& second = table.join("leaf 'y'", {&c});
  Gatherable& copy = made.add_copy(alone, at::kBFloat16);

  EXPECT_EQ(first.index, 1u);
  EXPECT_EQ(first.numel, 8);
  EXPECT_EQ(second.index, 2u);
  EXPECT_EQ(b.unit, &first);
  EXPECT_EQ(c.unit_of_owner(), &second);
  EXPECT_EQ(alone.unit, nullptr);
  EXPECT_EQ(table.params_of({first.key, alone.key, copy.key}), (Params{&a, &b, &alone}));
  EXPECT_EQ(table.num_params(first.key), 2u);
  EXPECT_EQ(table.num_params(copy.key), 1u);
  table.add_copy(copy);
  EXPECT_EQ(table.params_of({copy.key, second.key}), (Params{&copy, &c}));
}

TEST_F(ParamTableTest, FindsTheLatestCopyOfAType) {
  Gatherable& a = add("a", 3);
  Gatherable &former = made.add_copy(a, at::kHalf), &latest = made.add_copy(a, at::kHalf);
  table.add_copy(former);
  table.add_copy(latest);
  table.forget(former);
  EXPECT_EQ(table.params_of({latest.key}), Params{&latest});
  table.forget(latest);
  EXPECT_TRUE(table.params_of({latest.key}).empty());
}

TEST_F(ParamTableTest, RefusesAParameterInTwoUnitsAndKeepsNothingOfTheSecond) {
  Gatherable &a = add("a", 3), &b = add("b", 5);
  table.join("leaf 'x'", {&a});
  EXPECT_ERROR(UsageError, table.join("leaf 'y'", {&b, &a}), "parameter 'a'", "leaf 'x'", "leaf 'y'");
  EXPECT_EQ(b.unit, nullptr);
  EXPECT_ERROR(UsageError, table.join("leaf 'y'", {&b, &b}), "parameter 'b'", "leaf 'y'");
  EXPECT_EQ(b.unit, nullptr);
  EXPECT_EQ(table.join("leaf 'y'", {&b}).index, 2u);
}

TEST_F(ParamTableTest, TellsWhichUnitWasUsedLast) {
  Gatherable &a = add("a", 3), &b = add("b", 5), &alone = add("c", 1);
  table.join("leaf 'x'", {&a});
  table.join("leaf 'y'", {&b});
  EXPECT_EQ(table.current(), nullptr);
  EXPECT_FALSE(table.is_in_current(a));
  EXPECT_FALSE(table.is_in_current(alone));

  EXPECT_EQ(table.set_current(a.unit), nullptr);
  EXPECT_TRUE(table.is_in_current(a));
  EXPECT_FALSE(table.is_in_current(b));
  EXPECT_FALSE(table.is_in_current(alone));

  EXPECT_EQ(table.set_current(b.unit), a.unit);
  EXPECT_FALSE(table.is_in_current(a));
  EXPECT_EQ(table.set_current(nullptr), b.unit);
  EXPECT_EQ(table.current(), nullptr);
}

TEST_F(ParamTableTest, RemovesAForgottenParameterFromItsUnit) {
  Gatherable &a = add("a", 3), &b = add("b", 5);
  const GatherUnit& unit = table.join("leaf 'x'", {&a, &b});
  const Gatherable& copy = made.add_copy(a, at::kHalf);
  table.forget(a);
  EXPECT_EQ(unit.members, Params{&b});
  EXPECT_EQ(copy.unit, nullptr);
  EXPECT_EQ(copy.unit_of_owner(), &unit);
  EXPECT_TRUE(table.params_of({a.key}).empty());
}

TEST_F(ParamTableTest, ListsPersistentParametersThatAreMissingInTheOrderOfTheirKeys) {
  const PartitionedTraits persistent{.is_persistent = true};
  Gatherable &a = add("a", 1, persistent), &b = add("b", 1, persistent), &c = add("c", 1, persistent);
  add("d", 1);
  b.state = Gatherable::State::kWhole;
  EXPECT_EQ(table.missing_persistent(), (Params{&a, &c}));
}

}  // namespace
}  // namespace deepspeed::zero
