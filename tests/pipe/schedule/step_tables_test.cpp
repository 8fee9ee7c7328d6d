// The step tables of training, inference and data parallelism equal DeepSpeed's. They are compared with
// hashes of its own tables, and with its rule, written in another way than in the library.
#include <cstdio>
#include <fstream>
#include <memory>
#include <string>
#include <utility>

#include <gtest/gtest.h>

#include "deepspeed/base/error.h"
#include "deepspeed/base/hash.h"
#include "deepspeed/base/message.h"
#include "deepspeed/pipe/schedule/data_parallel_schedule.h"
#include "deepspeed/pipe/schedule/inference_schedule.h"
#include "deepspeed/pipe/schedule/train_schedule.h"

#include "tests/places/places.h"
#include "tests/support/error_of.h"

namespace deepspeed::pipe {
namespace {

using enum InstructionKind;

std::string text_of(const Steps& steps) {
  std::string text;
  for (const auto& step : steps) {
    for (const auto& instruction : step) text += to_string(instruction) + " ";
    text += "\n";
  }
  return text;
}

std::string text_of(const PipeSchedule& schedule) {
  return message(schedule.num_pipe_buffers(), "\n", text_of(schedule.steps()));
}

std::unique_ptr<PipeSchedule> make(const std::string& name, int micro_batches, int stages, int stage) {
  if (name == "train") return std::make_unique<TrainSchedule>(micro_batches, stages, stage);
  if (name == "inference") return std::make_unique<InferenceSchedule>(micro_batches, stages, stage);
  return std::make_unique<DataParallelSchedule>(micro_batches, stages, stage);
}

TEST(StepTables, AreDeepSpeedsForUpToEightStagesAndSixteenMicroBatches) {
  std::ifstream golden(deepspeed::testing::source_folder() / "tests/golden/pipe_schedules.txt");
  std::string name, expected;
  int stages, micro_batches, lines = 0;
  while (golden >> name >> stages >> micro_batches >> expected) {
    std::string text;
    for (int stage = 0; stage < stages; ++stage) text += text_of(*make(name, micro_batches, stages, stage));
    Hash hash;
    hash.add(text);
    char hexadecimal[17];
    std::snprintf(hexadecimal, sizeof hexadecimal, "%016lx", static_cast<unsigned long>(hash.value()));
    EXPECT_EQ(hexadecimal, expected) << name << " with " << stages << " stages, " << micro_batches
                                     << " micro batches";
    ++lines;
  }
  EXPECT_EQ(lines, 3 * 8 * 16);
}

TEST(StepTables, OfTrainingAreTheWorkedExampleOfTwoStagesAndTwoMicroBatches) {
  EXPECT_EQ(text_of(TrainSchedule(2, 2, 1)),
            "2\n"
            "\n"
            "RecvActivation(buffer_id=0) LoadMicroBatch(buffer_id=0) ForwardPass(buffer_id=0) \n"
            "BackwardPass(buffer_id=0) \n"
            "SendGrad(buffer_id=0) RecvActivation(buffer_id=1) LoadMicroBatch(buffer_id=1) "
            "ForwardPass(buffer_id=1) \n"
            "BackwardPass(buffer_id=1) \n"
            "SendGrad(buffer_id=1) ReduceTiedGrads() ReduceGrads() OptimizerStep() \n");
}

/// Returns DeepSpeed's micro batch in a step, and whether it is a forward. DeepSpeed distinguishes four
/// cases.
std::pair<int, bool> reference_turn(int step, int stage, int stages) {
  const bool even_step = step % 2 == 0;
  const bool even_stage = stage % 2 == 0;
  if (even_step && even_stage) return {step / 2 - stage / 2, true};
  if (!even_step && !even_stage) return {(step - 1) / 2 - stage / 2, true};
  if (even_step) return {step / 2 - stages + (stage + 1) / 2, false};
  return {(step - 1) / 2 - stages + 1 + stage / 2, false};
}

TEST(StepTables, TrainingComputesWhatDeepSpeedsFourCasesSay) {
  for (int stages = 1; stages <= 8; ++stages) {
    for (int micro_batches = 1; micro_batches <= 16; ++micro_batches) {
      for (int stage = 0; stage < stages; ++stage) {
        const auto steps = TrainSchedule(micro_batches, stages, stage).steps();
        ASSERT_EQ(steps.size(), 2u * (micro_batches + stages - 1));
        for (size_t i = 0; i < steps.size(); ++i) {
          const auto [micro_batch, is_forward] = reference_turn(int(i), stage, stages);
          int computed = -1;
          for (const auto& instruction : steps[i]) {
            if (!is_compute(instruction.kind)) continue;
            computed = instruction.micro_batch;
            EXPECT_EQ(instruction.kind, is_forward ? kForwardPass : kBackwardPass);
          }
          const bool is_valid = micro_batch >= 0 && micro_batch < micro_batches;
          EXPECT_EQ(computed, is_valid ? micro_batch : -1) << stages << " " << stage << " step " << i;
        }
      }
    }
  }
}

TEST(PipeSchedule, KnowsItsPlaceAndRefusesPlacesThatDoNotExist) {
  const TrainSchedule schedule(8, 4, 3);
  EXPECT_EQ(schedule.stage(), 3);
  EXPECT_EQ(schedule.num_stages(), 4);
  EXPECT_EQ(schedule.num_micro_batches(), 8);
  EXPECT_TRUE(schedule.is_last_stage());
  EXPECT_FALSE(schedule.is_first_stage());
  EXPECT_ERROR(UsageError, TrainSchedule(0, 1, 0), "micro_batches is 0", "1 or more");
  EXPECT_ERROR(UsageError, TrainSchedule(1, 0, 0), "stages is 0");
  EXPECT_ERROR(UsageError, TrainSchedule(1, 4, 4), "stage_id is 4", "0 to 3");
}

}  // namespace
}  // namespace deepspeed::pipe
