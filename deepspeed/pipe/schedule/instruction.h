// The instructions that a pipeline's engine executes in a step of its schedule. Names and meaning are
// DeepSpeed's, with the halves of a split backward added.
#pragma once

#include <string>
#include <vector>

#include "deepspeed/base/export.h"

namespace deepspeed::pipe {

enum class InstructionKind {
  kLoadMicroBatch,   // take inputs (first stage) or labels (last stage) from the data iterator
  kRecvActivation,   // receive a micro batch's inputs from the previous stage
  kForwardPass,      // run a chunk's layers on the inputs
  kSendActivation,   // send the outputs to the next stage
  kRecvGrad,         // receive the gradients of the outputs from the next stage
  kBackwardPass,     // compute gradients of inputs and parameters
  kBackwardInput,    // compute only the gradients of inputs
  kBackwardWeight,   // compute the gradients of parameters, after kBackwardInput
  kSendGrad,         // send the gradients of the inputs to the previous stage
  kReduceTiedGrads,  // sum gradients of tied weights over the stages that hold a copy
  kReduceGrads,      // reduce gradients among the stage's data-parallel ranks
  kOptimizerStep,    // step the optimizer and drop the gradients
};

/// Describes one instruction. The last three kinds concern no micro batch: their buffer_id and micro_batch
/// are -1.
struct Instruction {
  InstructionKind kind = InstructionKind::kOptimizerStep;
  int buffer_id = -1;    // from 0 to num_pipe_buffers() - 1
  int micro_batch = -1;  // from 0 to num_micro_batches() - 1
  int model_chunk = 0;   // part of the stage's layers; 0 with one part

  bool operator==(const Instruction&) const = default;
};

/// Holds instructions by step. Those of one step are executed in order.
using Steps = std::vector<std::vector<Instruction>>;

/// Returns DeepSpeed's name of the kind, for example "ForwardPass".
DEEPSPEED_API const char* name_of(InstructionKind kind);

/// Formats an instruction as DeepSpeed prints it, for example "ForwardPass(buffer_id=1)".
DEEPSPEED_API std::string to_string(const Instruction& instruction);

/// Returns whether the instruction runs layers: a forward, a backward or half of one.
DEEPSPEED_API bool is_compute(InstructionKind kind);
/// Returns whether the instruction sends to another stage.
DEEPSPEED_API bool is_send(InstructionKind kind);
/// Returns whether the instruction receives from another stage.
DEEPSPEED_API bool is_receive(InstructionKind kind);

}  // namespace deepspeed::pipe
