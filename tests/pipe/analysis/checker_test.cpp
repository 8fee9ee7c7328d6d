// Proves all schedules up to 16 stages and 64 micro batches, and checks that each kind of fault is found.
#include "deepspeed/pipe/analysis/checker.h"

#include <algorithm>
#include <functional>
#include <stdexcept>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace deepspeed::pipe {
namespace {

using ::testing::HasSubstr;
using enum InstructionKind;

constexpr int kMostStages = 16;
constexpr int kMostMicroBatches = 64;

TEST(Checker, Proves1F1BEvenIfSendsWaitForTheirReceives) {
  for (int stages = 1; stages <= kMostStages; ++stages) {
    for (int micro_batches = 1; micro_batches <= kMostMicroBatches; ++micro_batches) {
      const auto pipeline = train_steps("1f1b", micro_batches, stages);
      ASSERT_EQ(fault_of(pipeline), "") << stages << " stages, " << micro_batches << " micro batches";
      ASSERT_EQ(fault_of(pipeline, SendMode::kRendezvous), "") << stages << ", " << micro_batches;
    }
  }
}

TEST(Checker, ProvesInferenceEvenIfSendsWaitForTheirReceives) {
  for (int stages = 1; stages <= kMostStages; ++stages) {
    for (int micro_batches = 1; micro_batches <= kMostMicroBatches; ++micro_batches) {
      const auto pipeline = inference_steps(micro_batches, stages);
      ASSERT_EQ(fault_of(pipeline), "") << stages << " stages, " << micro_batches << " micro batches";
      ASSERT_EQ(fault_of(pipeline, SendMode::kRendezvous), "") << stages << ", " << micro_batches;
    }
  }
}

TEST(Checker, ProvesZeroBubble) {
  for (int stages = 1; stages <= kMostStages; ++stages) {
    for (int micro_batches = 1; micro_batches <= kMostMicroBatches; ++micro_batches) {
      ASSERT_EQ(fault_of(train_steps("zero_bubble", micro_batches, stages)), "")
          << stages << ", " << micro_batches;
    }
  }
}

TEST(Checker, ProvesInterleavedForTwoToFourChunks) {
  for (int chunks = 2; chunks <= 4; ++chunks) {
    for (int stages = 2; stages <= kMostStages; ++stages) {
      // More chunks with many micro batches follow the pattern of fewer; their tables are long.
      const int most = chunks == 2 ? kMostMicroBatches : 2 * stages + 1;
      for (int micro_batches = 1; micro_batches <= most; ++micro_batches) {
        ASSERT_EQ(fault_of(train_steps("interleaved", micro_batches, stages, chunks)), "")
            << chunks << " chunks, " << stages << " stages, " << micro_batches << " micro batches";
      }
    }
  }
}

/// Returns the fault of a schedule after a change of one stage's steps. It has four stages and six micro
/// batches.
std::string fault_after(const char* kind, int stage, const std::function<void(Steps&)>& change) {
  auto pipeline = train_steps(kind, 6, 4);
  change(pipeline.stages[stage]);
  return fault_of(pipeline);
}

/// Returns the n-th instruction of a kind.
Instruction& instruction_of(Steps& steps, InstructionKind kind, int n) {
  for (auto& step : steps) {
    for (auto& instruction : step) {
      if (instruction.kind == kind && n-- == 0) return instruction;
    }
  }
  throw std::out_of_range("there are not so many of them");
}

void erase_kind(Steps& steps, InstructionKind kind) {
  for (auto& step : steps) std::erase_if(step, [&](const auto& one) { return one.kind == kind; });
}

TEST(Checker, FindsSendsThatAreReceivedInAnotherOrder) {
  const auto swap_sends = [](Steps& steps) {
    std::swap(instruction_of(steps, kSendActivation, 0), instruction_of(steps, kSendActivation, 1));
  };
  // The first stage's last forwards come before their sends, so the stage by itself is in order.
  EXPECT_THAT(fault_after("1f1b", 0, swap_sends), HasSubstr("SendActivation"));
  const auto swap_late = [](Steps& steps) {
    auto& first = instruction_of(steps, kSendGrad, 0);
    auto& second = instruction_of(steps, kSendGrad, 1);
    const auto earlier = first;
    for (auto& step : steps) std::erase_if(step, [&](const auto& one) { return one == earlier; });
    for (auto& step : steps) {
      const auto found = std::find(step.begin(), step.end(), second);
      if (found == step.end()) continue;
      step.insert(found + 1, earlier);
      return;
    }
  };
  EXPECT_THAT(fault_after("zero_bubble", 3, swap_late),
              HasSubstr("gradients from stage 3 to stage 2: what is sent is not what is received"));
}

TEST(Checker, FindsReceivesWithoutASend) {
  EXPECT_THAT(fault_after("1f1b", 0, [](Steps& steps) { erase_kind(steps, kSendActivation); }),
              HasSubstr("stage 0"));
  EXPECT_THAT(
      fault_after("1f1b", 1, [](Steps& steps) { erase_kind(steps, kRecvGrad); }),
      HasSubstr("stage 1: BackwardPass(buffer_id=0) of micro batch 0, chunk 0: what it needs is not there"));
}

TEST(Checker, FindsABufferThatIsOverwritten) {
  auto pipeline = train_steps("1f1b", 6, 4);
  for (auto& step : pipeline.stages[0]) {
    for (auto& instruction : step) {
      if (instruction.buffer_id >= 0) instruction.buffer_id %= 3;
    }
  }
  EXPECT_THAT(fault_of(pipeline), HasSubstr("overwrites a buffer that is in use"));
  pipeline = train_steps("zero_bubble", 6, 4);
  pipeline.num_buffers[2] = 3;
  EXPECT_THAT(fault_of(pipeline), HasSubstr("stage 2"));
  EXPECT_THAT(fault_of(pipeline), HasSubstr("there is no such buffer"));
}

TEST(Checker, FindsPassesThatAreMissingOrComeTwice) {
  EXPECT_THAT(fault_after("zero_bubble", 1, [](Steps& steps) { erase_kind(steps, kBackwardWeight); }),
              HasSubstr("stage 1"));
  const auto repeat = [](Steps& steps) {
    steps.back().insert(steps.back().end() - 3, instruction_of(steps, kBackwardPass, 5));
  };
  EXPECT_THAT(fault_after("1f1b", 0, repeat), HasSubstr("comes twice"));
  EXPECT_THAT(fault_after("1f1b", 3, [](Steps& steps) { erase_kind(steps, kLoadMicroBatch); }),
              HasSubstr("ForwardPass(buffer_id=0) of micro batch 0, chunk 0: what it needs is not there"));
}

TEST(Checker, FindsABatchThatEndsEarlyOrWithoutAStep) {
  EXPECT_THAT(fault_after("1f1b", 2, [](Steps& steps) { erase_kind(steps, kOptimizerStep); }),
              HasSubstr("stage 2: it does not end with reductions"));
  const auto step_first = [](Steps& steps) { steps.front().push_back({kOptimizerStep}); };
  EXPECT_THAT(fault_after("1f1b", 0, step_first), HasSubstr("before all micro batches are done"));
  EXPECT_THAT(fault_after("1f1b", 2, [](Steps& steps) { steps.emplace_back(); }),
              HasSubstr("stage 2 has a different number of steps"));
}

TEST(Checker, FindsSendsThatWouldWaitForTheirReceives) {
  const auto pipeline = train_steps("zero_bubble", 2, 2);
  EXPECT_EQ(fault_of(pipeline), "");
  EXPECT_THAT(fault_of(pipeline, SendMode::kRendezvous), HasSubstr("waits forever"));
}

TEST(Checker, FindsStagesThatWaitForEachOther) {
  // The first stage needs a gradient before its second forward. The last stage needs the second activation
  // before that gradient. Each stage by itself is in order, and so is each channel.
  const std::vector<InstructionKind> end = {kReduceTiedGrads, kReduceGrads, kOptimizerStep};
  const auto steps_of = [&](const std::vector<std::pair<InstructionKind, int>>& work) {
    Steps steps(1);
    for (const auto& [kind, micro_batch] : work) steps[0].push_back({kind, micro_batch, micro_batch});
    for (const auto kind : end) steps[0].push_back({kind});
    return steps;
  };
  const Steps first = steps_of({{kLoadMicroBatch, 0},
                                {kForwardPass, 0},
                                {kSendActivation, 0},
                                {kRecvGrad, 0},
                                {kBackwardPass, 0},
                                {kLoadMicroBatch, 1},
                                {kForwardPass, 1},
                                {kSendActivation, 1},
                                {kRecvGrad, 1},
                                {kBackwardPass, 1}});
  const Steps last = steps_of({{kRecvActivation, 0},
                               {kLoadMicroBatch, 0},
                               {kForwardPass, 0},
                               {kRecvActivation, 1},
                               {kLoadMicroBatch, 1},
                               {kForwardPass, 1},
                               {kBackwardPass, 0},
                               {kSendGrad, 0},
                               {kBackwardPass, 1},
                               {kSendGrad, 1}});
  EXPECT_EQ(fault_of({2, 1, {first, last}, {2, 2}}), "stage 0 waits forever");
}

}  // namespace
}  // namespace deepspeed::pipe
