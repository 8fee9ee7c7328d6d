#include "deepspeed/pipe/schedule/instruction.h"

#include "deepspeed/base/message.h"

namespace deepspeed::pipe {

using enum InstructionKind;

const char* name_of(InstructionKind kind) {
  switch (kind) {
    case kLoadMicroBatch:
      return "LoadMicroBatch";
    case kRecvActivation:
      return "RecvActivation";
    case kForwardPass:
      return "ForwardPass";
    case kSendActivation:
      return "SendActivation";
    case kRecvGrad:
      return "RecvGrad";
    case kBackwardPass:
      return "BackwardPass";
    case kBackwardInput:
      return "BackwardInput";
    case kBackwardWeight:
      return "BackwardWeight";
    case kSendGrad:
      return "SendGrad";
    case kReduceTiedGrads:
      return "ReduceTiedGrads";
    case kReduceGrads:
      return "ReduceGrads";
    case kOptimizerStep:
      return "OptimizerStep";
  }
  return "unknown";
}

std::string to_string(const Instruction& instruction) {
  const std::string name = name_of(instruction.kind);
  if (instruction.buffer_id < 0) return name + "()";
  return message(name, "(buffer_id=", instruction.buffer_id, ")");
}

bool is_compute(InstructionKind kind) {
  return kind == kForwardPass || kind == kBackwardPass || kind == kBackwardInput || kind == kBackwardWeight;
}

bool is_send(InstructionKind kind) { return kind == kSendActivation || kind == kSendGrad; }

bool is_receive(InstructionKind kind) { return kind == kRecvActivation || kind == kRecvGrad; }

}  // namespace deepspeed::pipe
