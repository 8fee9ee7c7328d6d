// Tests what an engine relies on in schedules that are placed slot by slot.
#include "deepspeed/pipe/schedule/timetable_schedule.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "deepspeed/base/error.h"
#include "deepspeed/pipe/analysis/drawing.h"
#include "deepspeed/pipe/schedule/interleaved_schedule.h"
#include "deepspeed/pipe/schedule/zero_bubble_schedule.h"

#include "tests/support/error_of.h"

namespace deepspeed::pipe {
namespace {

using ::testing::ElementsAre;
using enum InstructionKind;

TEST(PeerOf, JoinsTheLastStageWithTheNextChunkOfTheFirst) {
  EXPECT_EQ(peer_of({kSendActivation, 0, 0, 1}, 2, 4), (Peer{3, 1}));
  EXPECT_EQ(peer_of({kSendActivation, 0, 0, 0}, 3, 4), (Peer{0, 1}));
  EXPECT_EQ(peer_of({kRecvActivation, 0, 0, 1}, 0, 4), (Peer{3, 0}));
  EXPECT_EQ(peer_of({kSendGrad, 0, 0, 1}, 0, 4), (Peer{3, 0}));
  EXPECT_EQ(peer_of({kRecvGrad, 0, 0, 0}, 3, 4), (Peer{0, 1}));
  EXPECT_ERROR(UsageError, peer_of({kForwardPass, 0, 0, 0}, 3, 4), "ForwardPass");
}

TEST(ZeroBubbleSchedule, SendsInputGradientsBeforeItComputesThoseOfWeights) {
  const auto steps = ZeroBubbleSchedule(2, 2, 1).steps();
  std::vector<InstructionKind> kinds;
  for (const auto& step : steps) {
    for (const auto& instruction : step) {
      if (instruction.micro_batch != 1) kinds.push_back(instruction.kind);
    }
  }
  EXPECT_THAT(kinds, ElementsAre(kRecvActivation, kLoadMicroBatch, kForwardPass, kBackwardInput, kSendGrad,
                                 kBackwardWeight, kReduceTiedGrads, kReduceGrads, kOptimizerStep));
}

TEST(InterleavedSchedule, GroupsAreEqualAndNoneIsSmallerThanTheStages) {
  EXPECT_THAT(interleaved_groups(8, 4), ElementsAre(4, 4));
  EXPECT_THAT(interleaved_groups(10, 4), ElementsAre(5, 5));
  EXPECT_THAT(interleaved_groups(11, 4), ElementsAre(6, 5));
  EXPECT_THAT(interleaved_groups(3, 4), ElementsAre(3));
}

TEST(InterleavedSchedule, LoadsInputsForTheFirstChunkAndLabelsForTheLast) {
  for (const auto& step : InterleavedSchedule(4, 2, 0, 2).steps()) {
    for (const auto& one : step) EXPECT_TRUE(one.kind != kLoadMicroBatch || one.model_chunk == 0);
  }
  int labels = 0;
  for (const auto& step : InterleavedSchedule(4, 2, 1, 2).steps()) {
    for (const auto& one : step) {
      EXPECT_TRUE(one.kind != kLoadMicroBatch || one.model_chunk == 1);
      labels += int(one.kind == kLoadMicroBatch);
    }
  }
  EXPECT_EQ(labels, 4);
}

TEST(InterleavedSchedule, RefusesOneStageOrOneChunk) {
  EXPECT_ERROR(UsageError, InterleavedSchedule(4, 1, 0, 2), "stages is 1", "2 or more");
  EXPECT_ERROR(UsageError, InterleavedSchedule(4, 2, 0, 1), "model_chunks is 1", "2 or more");
}

TEST(Timetable, OrdersThatWaitForEachOtherAreAnError) {
  // The only stage would run its backward before its forward.
  const std::vector<std::vector<Pass>> orders = {{{kBackwardPass, 0}, {kForwardPass, 0}}};
  EXPECT_ERROR(UsageError, place_in_order({1, 1}, orders), "wait for each other in slot 0");
}

TEST(Draw, HasARowForEachStageAndAColumnForEachStep) {
  EXPECT_EQ(draw(train_steps("zero_bubble", 2, 2)),
            "stage 0 | F0 F1 .  B0 W0 B1 W1\n"
            "stage 1 | .  F0 B0 F1 B1 W0 W1\n");
  EXPECT_EQ(draw(train_steps("interleaved", 2, 2, 2)),
            "stage 0 | F0a F1a F0b F1b .   B0b .   B1b B0a B1a\n"
            "stage 1 | .   F0a F1a F0b B0b F1b B1b B0a B1a .\n");
  EXPECT_EQ(describe(train_steps("1f1b", 8, 4)),
            "bubble: 37.5 % of the ideal time\nactivations held at most: 4 3 2 1 micro batches\n");
}

}  // namespace
}  // namespace deepspeed::pipe
