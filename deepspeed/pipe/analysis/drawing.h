// A schedule as text: one row per stage, one column per step.
#pragma once

#include <string>

#include "deepspeed/base/export.h"
#include "deepspeed/pipe/analysis/pipeline_steps.h"

namespace deepspeed::pipe {

/// Draws what each stage computes in each step. F3 is the forward of micro batch 3, B its backward (or
/// BackwardInput), W its BackwardWeight. If stages have several chunks, a letter after the number is the
/// chunk. A point is an idle step. Each line ends with a newline.
DEEPSPEED_API std::string draw(const PipelineSteps& pipeline);

/// Describes a training schedule in two lines. They give its bubble, simulated for passes of equal length,
/// and the most activations that each stage holds.
DEEPSPEED_API std::string describe(const PipelineSteps& pipeline);

}  // namespace deepspeed::pipe
