// What an engine of a pipeline does in a step of its schedule. Names and meaning are DeepSpeed's; the halves
// of a split backward are added to them.
#pragma once

#include <string>
#include <vector>

#include "deepspeed/base/export.h"

namespace deepspeed::pipe {

enum class InstructionKind {
  kLoadMicroBatch,   // inputs (first stage) or labels (last stage) come from the data iterator
  kRecvActivation,   // the inputs of a micro batch come from the previous stage
  kForwardPass,      // the layers of a chunk make outputs of the inputs
  kSendActivation,   // the outputs go to the next stage
  kRecvGrad,         // the gradients of the outputs come from the next stage
  kBackwardPass,     // gradients of the inputs and of the parameters are computed
  kBackwardInput,    // gradients of the inputs alone are computed
  kBackwardWeight,   // gradients of the parameters are computed, after kBackwardInput
  kSendGrad,         // the gradients of the inputs go to the previous stage
  kReduceTiedGrads,  // gradients of tied weights are summed over the stages that hold a copy
  kReduceGrads,      // gradients are reduced among the data-parallel ranks of the stage
  kOptimizerStep,    // the optimizer steps and gradients are dropped
};

/// One instruction. Kinds that concern a micro batch have all members set; for the last three kinds buffer
/// and micro batch are -1.
struct Instruction {
  InstructionKind kind = InstructionKind::kOptimizerStep;
  int buffer_id = -1;    // from 0 to num_pipe_buffers() - 1
  int micro_batch = -1;  // from 0 to num_micro_batches() - 1
  int model_chunk = 0;   // which part of the stage's layers; 0 where a stage has one part

  bool operator==(const Instruction&) const = default;
};

/// Instructions by step: those of one step are executed in their order.
using Steps = std::vector<std::vector<Instruction>>;

/// Returns DeepSpeed's name of the kind, for example "ForwardPass".
DEEPSPEED_API const char* name_of(InstructionKind kind);

/// Writes an instruction as DeepSpeed prints it, for example "ForwardPass(buffer_id=1)".
DEEPSPEED_API std::string to_string(const Instruction& instruction);

/// Says whether the instruction computes with layers: a forward, a backward or half of one.
DEEPSPEED_API bool is_compute(InstructionKind kind);
/// Says whether the instruction sends to another stage.
DEEPSPEED_API bool is_send(InstructionKind kind);
/// Says whether the instruction receives from another stage.
DEEPSPEED_API bool is_receive(InstructionKind kind);

}  // namespace deepspeed::pipe
