#include "deepspeed/zero/access/unit_table.h"

#include <ATen/ops/zeros.h>

#include <gtest/gtest.h>

#include "deepspeed/comm/fake.h"
#include "deepspeed/zero/access/gather_pool.h"

#include "tests/support/error_of.h"

namespace deepspeed::zero {
namespace {

/// Parameters that a pool could gather, of a table that the pool knows nothing of.
class UnitTableTest : public ::testing::Test {
 protected:
  std::shared_ptr<PartitionedStorage> make_param(const std::string& name, int64_t numel) {
    auto shard = std::make_shared<MemoryShard>(at::zeros({numel}));
    return std::make_shared<PartitionedStorage>(pool_, name, numel, at::kCPU, std::move(shard),
                                                PartitionedTraits{});
  }

  UnitTable table;

 private:
  const std::shared_ptr<GatherPool> pool_ =
      std::make_shared<GatherPool>(comm::make_fake_world(1).group(), GatherPoolOptions());
};

TEST_F(UnitTableTest, FindsUnitsByTheirParametersAndByKey) {
  const auto a = make_param("a", 3), b = make_param("b", 5), c = make_param("c", 7),
             alone = make_param("d", 1);
  const GatherUnit& first = table.add("leaf 'x'", 256, {a, b});
  const GatherUnit& second = table.add("leaf 'y'", 512, {c});

  EXPECT_EQ(first.index, 1u);
  EXPECT_EQ(first.numel, 8);
  EXPECT_EQ(first.members, (std::vector<PartitionedStorage*>{a.get(), b.get()}));
  EXPECT_EQ(second.index, 2u);
  EXPECT_EQ(second.key, 512u);
  EXPECT_EQ(table.unit_of(*a), &first);
  EXPECT_EQ(table.unit_of(*b), &first);
  EXPECT_EQ(table.unit_of(*c), &second);
  EXPECT_EQ(table.unit_of(*alone), nullptr);
  EXPECT_EQ(table.find(256), &first);
  EXPECT_EQ(table.find(512), &second);
  EXPECT_EQ(table.find(768), nullptr);
}

TEST_F(UnitTableTest, RefusesAParameterInTwoUnitsAndKeepsNothingOfTheSecond) {
  const auto a = make_param("a", 3), b = make_param("b", 5);
  table.add("leaf 'x'", 256, {a});
  EXPECT_ERROR(UsageError, table.add("leaf 'y'", 512, {b, a}), "parameter 'a'", "leaf 'x'", "leaf 'y'");
  EXPECT_EQ(table.unit_of(*b), nullptr);
  EXPECT_EQ(table.find(512), nullptr);
  EXPECT_ERROR(UsageError, table.add("leaf 'y'", 512, {b, b}), "parameter 'b'", "leaf 'y'");
  EXPECT_EQ(table.unit_of(*b), nullptr);
  EXPECT_EQ(table.add("leaf 'y'", 512, {b}).index, 2u);
}

TEST_F(UnitTableTest, TellsWhichUnitWasUsedLast) {
  const auto a = make_param("a", 3), b = make_param("b", 5), alone = make_param("c", 1);
  table.add("leaf 'x'", 256, {a});
  table.add("leaf 'y'", 512, {b});
  EXPECT_EQ(table.current(), nullptr);
  EXPECT_FALSE(table.is_in_current(*a));
  EXPECT_FALSE(table.is_in_current(*alone));

  EXPECT_EQ(table.set_current(table.unit_of(*a)), nullptr);
  EXPECT_TRUE(table.is_in_current(*a));
  EXPECT_FALSE(table.is_in_current(*b));
  EXPECT_FALSE(table.is_in_current(*alone));

  EXPECT_EQ(table.set_current(table.unit_of(*b)), table.unit_of(*a));
  EXPECT_FALSE(table.is_in_current(*a));
  EXPECT_EQ(table.set_current(nullptr), table.unit_of(*b));
  EXPECT_EQ(table.current(), nullptr);
}

TEST_F(UnitTableTest, KnowsTheUnitOfAParameterThatIsGatheredNoMoreUntilItIsForgotten) {
  const auto a = make_param("a", 3), b = make_param("b", 5);
  const GatherUnit& unit = table.add("leaf 'x'", 256, {a, b});
  table.remove_member(*a);
  EXPECT_EQ(unit.members, std::vector<PartitionedStorage*>{b.get()});
  EXPECT_EQ(table.unit_of(*a), &unit);

  table.forget(*a);
  EXPECT_EQ(table.unit_of(*a), nullptr);
  table.forget(*b);
  EXPECT_TRUE(unit.members.empty());
  EXPECT_EQ(table.find(256), &unit);
}

TEST_F(UnitTableTest, TakesNoNoteOfAParameterWithoutAUnit) {
  const auto a = make_param("a", 3), alone = make_param("b", 5);
  const GatherUnit& unit = table.add("leaf 'x'", 256, {a});
  table.remove_member(*alone);
  table.forget(*alone);
  EXPECT_EQ(unit.members, std::vector<PartitionedStorage*>{a.get()});
}

}  // namespace
}  // namespace deepspeed::zero
