// Saves and resumes trainings of the small pipeline, at any number of stages.
#pragma once

#include <string>
#include <vector>

#include "tests/pipe/engine/small_pipeline.h"

namespace deepspeed::testing {

inline constexpr int kSavedAt = 3, kSteps = 13;  // ten steps after the checkpoint

/// Trains, saves in the middle, and returns the losses after that.
std::vector<double> train_and_save(const PipelineRun& run, int num_ranks, const std::string& folder);
/// Returns the losses of a run that resumes from the checkpoint.
std::vector<double> resume(const PipelineRun& run, int num_ranks, const std::string& folder,
                           bool is_universal = false);
/// Expects losses within `tolerance` of the expected ones, relative to these.
void expect_equal(const std::vector<double>& losses, const std::vector<double>& expected, double tolerance,
                  const std::string& what);

}  // namespace deepspeed::testing
