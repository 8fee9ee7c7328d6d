// Proves that the stages of a schedule work together, without running it.
#pragma once

#include <string>

#include "deepspeed/base/export.h"
#include "deepspeed/pipe/analysis/pipeline_steps.h"

namespace deepspeed::pipe {

/// Says when a send ends: at once, or when its receiver has begun to receive.
enum class SendMode { kAsynchronous, kRendezvous };

/// Returns what is wrong with a schedule, or an empty text. A schedule without a backward is checked as an
/// inference schedule. These properties are checked for all stages together:
/// - each micro batch goes once forward and once backward (whole, or input before weight) through each chunk
///   of each stage; the model's first and last parts load it; each pass has received what it needs;
/// - on each channel (channels.h) receives match the sends, in order, and are in no earlier step than
///   their sends;
/// - a buffer is reused only after its micro batch's backward is done and its results are sent;
/// - in training, gradients are reduced and the optimizer steps once, after everything else;
/// - stages that execute their instructions in order, with receives that wait, all finish. Only this depends
///   on `mode`.
DEEPSPEED_API std::string fault_of(const PipelineSteps& pipeline, SendMode mode = SendMode::kAsynchronous);

}  // namespace deepspeed::pipe
