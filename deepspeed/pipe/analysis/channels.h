// The channels between stages. Activations from one stage to another are received in the order of the sends,
// and so are gradients. Activations and gradients have separate channels: between two stages with several
// chunks both kinds go in each direction, and one kind may overtake the other. An engine needs a tag for each
// kind.
#pragma once

#include <compare>

#include "deepspeed/pipe/schedule/timetable_schedule.h"

namespace deepspeed::pipe {

/// Identifies a direction between two stages, for activations or for gradients.
struct Channel {
  int from;
  int to;
  bool is_gradient;

  auto operator<=>(const Channel&) const = default;
};

/// Returns the channel of a send or receive that `stage` executes. Throws UsageError for other instructions.
inline Channel channel_of(const Instruction& instruction, int stage, int stages) {
  const int peer = peer_of(instruction, stage, stages).stage;
  const bool is_gradient =
      instruction.kind == InstructionKind::kSendGrad || instruction.kind == InstructionKind::kRecvGrad;
  return is_send(instruction.kind) ? Channel{stage, peer, is_gradient} : Channel{peer, stage, is_gradient};
}

}  // namespace deepspeed::pipe
