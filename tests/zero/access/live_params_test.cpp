#include "deepspeed/zero/access/live_params.h"

#include <ATen/ATen.h>

#include <gtest/gtest.h>

#include "tests/zero/access/poolless_params.h"

namespace deepspeed::zero {
namespace {

using State = Gatherable::State;

class LiveParamsTest : public ::testing::Test {
 protected:
  Gatherable& add_whole(const std::string& name, int64_t numel, PartitionedTraits traits = {}) {
    Gatherable& param = made.add(name, numel, traits);
    table.add(param);
    make_whole(param);
    return param;
  }
  void make_whole(Gatherable& param) {
    live.add(param, at::full({param.numel}, 7.0, param.dtype));
    live.set_whole(param);
  }

  testing::PoollessParams made;
  ParamTable table;
  LookAhead ahead{{}, 0, table};
  LiveParams live{30, table, ahead};
};

TEST_F(LiveParamsTest, FillsAndEmptiesTheStorage) {
  Gatherable& a = made.add("a", 10);
  table.add(a);
  EXPECT_ANY_THROW(made.tensor(a).sum());
  live.add(a, at::full({10}, 2.0));
  EXPECT_EQ(a.state, State::kGathering);
  EXPECT_EQ(live.numel(), 10);
  live.set_whole(a);
  EXPECT_EQ(a.state, State::kWhole);
  EXPECT_EQ(made.tensor(a).sum().item<double>(), 20.0);
  live.replace(a, at::full({10}, 3.0));
  EXPECT_EQ(made.tensor(a).sum().item<double>(), 30.0);
  live.release(a);
  EXPECT_EQ(a.state, State::kPartitioned);
  EXPECT_FALSE(a.whole.defined());
  EXPECT_EQ(live.numel(), 0);
  EXPECT_ANY_THROW(made.tensor(a).sum());
}

TEST_F(LiveParamsTest, ReleasesTheLeastRecentlyUsedAtTheLimit) {
  Gatherable &a = add_whole("a", 10), &b = add_whole("b", 10), &c = add_whole("c", 10);
  live.note_used(a);
  EXPECT_EQ(live.latest(), &a);
  EXPECT_EQ(live.oldest(), &b);
  EXPECT_EQ(live.room(), 0);
  live.make_room(10);
  EXPECT_EQ(b.state, State::kPartitioned);
  EXPECT_EQ(c.state, State::kWhole);
  EXPECT_EQ(live.room(), 10);
}

TEST_F(LiveParamsTest, KeepsWhatIsInUseHeldPersistentOrWritten) {
  Gatherable &used = add_whole("used", 5), &held = add_whole("held", 5), &written = add_whole("written", 5);
  Gatherable& persistent = add_whole("persistent", 5, {.is_persistent = true});
  Gatherable& unit_member = add_whole("member", 5);
  table.join("leaf", {&unit_member});
  table.set_current(unit_member.unit);
  used.num_uses = 1;
  held.num_holds = 1;
  written.is_kept = true;
  live.make_room(30);
  for (const Gatherable* const param : {&used, &held, &written, &persistent, &unit_member}) {
    EXPECT_EQ(param->state, State::kWhole) << param->name;
    EXPECT_FALSE(live.may_go(*param)) << param->name;
  }
  used.num_uses = 0;
  table.set_current(nullptr);
  live.make_room(30);
  EXPECT_EQ(used.state, State::kPartitioned);
  EXPECT_EQ(unit_member.state, State::kPartitioned);
  EXPECT_EQ(held.state, State::kWhole);
}

TEST_F(LiveParamsTest, KeepsEverythingInAPassWithoutATraceAndNothingOutsideOne) {
  Gatherable &a = add_whole("a", 10), &member = add_whole("member", 10);
  table.join("leaf", {&member});
  EXPECT_TRUE(live.is_done(a));
  EXPECT_TRUE(live.is_done(member));
  ahead.begin_pass(AccessMode::kTraining);
  EXPECT_FALSE(live.is_done(a));
  EXPECT_FALSE(live.is_done(member));
  EXPECT_TRUE(live.may_go(a));
}

TEST_F(LiveParamsTest, CountsNoCopiesOfAUnitsParametersSinceRanksHaveDifferentOnes) {
  Gatherable &member = add_whole("member", 10), &alone = add_whole("alone", 10);
  table.join("leaf", {&member});
  Gatherable &of_member = made.add_copy(member, at::kHalf), &of_alone = made.add_copy(alone, at::kHalf);
  make_whole(of_member);
  EXPECT_EQ(live.numel(), 20);
  EXPECT_EQ(member.unit->live_copies.count(&of_member), 1u);
  make_whole(of_alone);
  EXPECT_EQ(live.numel(), 30);
  live.release(of_member);
  EXPECT_TRUE(member.unit->live_copies.empty());
  EXPECT_EQ(live.numel(), 30);
}

}  // namespace
}  // namespace deepspeed::zero
