#include "deepspeed/zero/access/look_ahead.h"

#include <gtest/gtest.h>

#include "tests/zero/access/poolless_params.h"

namespace deepspeed::zero {
namespace {

using Params = std::vector<Gatherable*>;

config::ParamGatherConfig prefetching(int64_t prefetch_numel, int64_t max_reuse_distance) {
  config::ParamGatherConfig keys;
  keys.stage3_prefetch_bucket_size = prefetch_numel;
  keys.stage3_max_reuse_distance = max_reuse_distance;
  return keys;
}

/// A model of four parameters, which a pass uses in order.
class LookAheadTest : public ::testing::Test {
 protected:
  LookAheadTest() {
    for (Gatherable* const param : {&a, &b, &c, &d}) table.add(*param);
  }
  void run_pass(const Params& uses, AccessMode mode = AccessMode::kTraining) {
    ahead.begin_pass(mode);
    for (Gatherable* const param : uses) {
      ahead.note_use(*param);
      EXPECT_TRUE(ahead.to_gather(100).empty());
    }
    ahead.end_pass();
  }
  void set_state(Gatherable& param, Gatherable::State state) {
    param.state = state;
    ahead.recount(param);
  }

  testing::PoollessParams made;
  Gatherable &a = made.add("a", 10), &b = made.add("b", 10), &c = made.add("c", 10), &d = made.add("d", 10);
  ParamTable table;
  LookAhead ahead{prefetching(20, 15), 0, table};
};

TEST_F(LookAheadTest, GathersTheNextParametersFromTheSecondPassOn) {
  run_pass({&a, &b, &c, &d});
  ahead.begin_pass(AccessMode::kTraining);
  EXPECT_TRUE(ahead.is_in_pass());
  ahead.note_use(a);
  EXPECT_EQ(ahead.to_gather(100), (Params{&b, &c}));
  EXPECT_EQ(ahead.to_gather(15), Params{&b});
  set_state(b, Gatherable::State::kGathering);
  EXPECT_EQ(ahead.to_gather(100), Params{&c});
  ahead.end_pass();
  EXPECT_FALSE(ahead.is_in_pass());
}

TEST_F(LookAheadTest, GathersNothingOfAParameterThatIsGone) {
  run_pass({&a, &b, &c, &d});
  ahead.begin_pass(AccessMode::kTraining);
  ahead.note_use(a);
  EXPECT_EQ(ahead.to_gather(100), (Params{&b, &c}));
  ahead.forget(b);
  table.forget(b);
  EXPECT_EQ(ahead.to_gather(100), Params{&c});
}

TEST_F(LookAheadTest, GathersAUnitAsAWhole) {
  table.join("leaf 'x'", {&b, &d});
  run_pass({&a, &b, &c});
  ahead.begin_pass(AccessMode::kTraining);
  ahead.note_use(a);
  EXPECT_EQ(ahead.to_gather(100), (Params{&b, &d}));
}

TEST_F(LookAheadTest, LeavesOutACopyWhoseSourceHasChangedAndTakesTheNewOne) {
  Gatherable& former = made.add_copy(b, at::kBFloat16);
  table.add_copy(former);
  run_pass({&a, &former});
  ++b.version;
  ahead.begin_pass(AccessMode::kTraining);
  ahead.note_use(a);
  EXPECT_TRUE(ahead.to_gather(100).empty());
  Gatherable& latest = made.add_copy(b, at::kBFloat16);
  table.add_copy(latest);
  ahead.replace(latest);
  EXPECT_EQ(ahead.to_gather(100), Params{&latest});
}

TEST_F(LookAheadTest, KeepsWhatIsUsedSoonAgain) {
  EXPECT_TRUE(ahead.stays(a.key));
  run_pass({&a, &b, &a, &c, &d, &b});
  ahead.begin_pass(AccessMode::kTraining);
  ahead.note_use(a);
  EXPECT_TRUE(ahead.is_used_soon(a.key));  // after 10 elements of b
  ahead.note_use(b);
  EXPECT_FALSE(ahead.stays(b.key));  // after 30 elements
  EXPECT_FALSE(ahead.stays_for_backward(a));
  ahead.note_use(a);
  EXPECT_FALSE(ahead.is_used_soon(a.key));
  EXPECT_TRUE(ahead.is_over_in_backward(a.key));
  ahead.note_use(d);  // the trace says c
  EXPECT_FALSE(ahead.is_used_soon(b.key));
  EXPECT_TRUE(ahead.stays(a.key));
}

TEST_F(LookAheadTest, KeepsForTheBackwardWhatItUsesFirst) {
  run_pass({&a, &b}, AccessMode::kForward);
  run_pass({&b, &a}, AccessMode::kBackward);
  ahead.begin_pass(AccessMode::kForward);
  ahead.note_use(a);
  ahead.note_use(b);
  ahead.end_pass();
  EXPECT_TRUE(ahead.stays_for_backward(b));
  EXPECT_TRUE(ahead.stays_for_backward(a));  // 10 elements of b before it
  EXPECT_FALSE(ahead.stays_for_backward(c));
}

}  // namespace
}  // namespace deepspeed::zero
