// A schedule's time and memory: simulated from its instructions, and by formula.
#pragma once

#include <string>
#include <vector>

#include "deepspeed/base/export.h"
#include "deepspeed/pipe/analysis/pipeline_steps.h"

namespace deepspeed::pipe {

/// Holds the times of one micro batch's passes through a stage, in any unit. Sends take no time. BackwardPass
/// takes backward_input + backward_weight.
struct PassCosts {
  double forward = 1;
  double backward_input = 1;
  double backward_weight = 1;
};

/// Returns a stage's computing time for a batch. It is micro_batches * (forward + both halves of backward).
DEEPSPEED_API double ideal_time(int micro_batches, const PassCosts& costs);

/// Returns the time at which the last stage is done, by simulating all stages. Instructions run in order, and
/// receives wait for their sends. Throws UsageError if the stages wait for each other forever.
DEEPSPEED_API double simulated_time(const PipelineSteps& pipeline, const PassCosts& costs = {});

/// Returns by formula the time of train_steps(kind, ...) beyond the ideal, relative to the ideal. With passes
/// of f, b and w for a stage, M micro batches, S stages and v chunks, the times of a batch are
///   1f1b         (M + S - 1) * (f + b + w)
///   interleaved  (max(M, S) + (min(M, S) - 1) / v) * (f + b + w)
///   zero_bubble  (M + S - 1) * (f + b) + max(M - S + 1, 1) * w, if w <= f and w <= b; otherwise more
/// Sources: Narayanan et al. (2021), 2.2; Qi et al. (2023), table 1. For M below S the formula is derived
/// from the longest path: to the last part of the model, all its passes, and back. Throws UsageError as
/// make_train_schedule does.
DEEPSPEED_API double bubble_formula(const std::string& kind, int micro_batches, int stages,
                                    int model_chunks = 1, const PassCosts& costs = {});

/// Returns the most activations that a stage holds at a time. Each micro batch counts once per chunk, from
/// the begin of its forward to the end of its whole backward.
DEEPSPEED_API int peak_activations(const Steps& steps);

/// Returns peak_activations() of a stage of train_steps(kind, ...) by formula. M, S and v are as in
/// bubble_formula(), s is the stage and G the largest of interleaved_groups():
///   1f1b         min(S - s, M)
///   interleaved  min(v * M, 2 * (S - 1 - s) + (v - 1) * G + 1)
///   zero_bubble  min(S, M)
/// Throws UsageError as make_train_schedule does.
DEEPSPEED_API int peak_activations_formula(const std::string& kind, int micro_batches, int stages, int stage,
                                           int model_chunks = 1);

}  // namespace deepspeed::pipe
