// A schedule as text: one row a stage, one column a step.
#pragma once

#include <string>

#include "deepspeed/base/export.h"
#include "deepspeed/pipe/analysis/pipeline_steps.h"

namespace deepspeed::pipe {

/// Draws what each stage computes in each step: F3 is the forward of micro batch 3, B its backward (or
/// BackwardInput), W its BackwardWeight; a letter behind the number is the chunk, where stages have several.
/// A point is an idle step. Each line ends with a newline.
DEEPSPEED_API std::string draw(const PipelineSteps& pipeline);

/// Writes the bubble of a training schedule, as simulated for passes of equal length, and the activations
/// that its stages hold at most: two lines.
DEEPSPEED_API std::string describe(const PipelineSteps& pipeline);

}  // namespace deepspeed::pipe
