// Work whose failure on one rank all ranks learn, before they meet in a collective that it would not reach.
#pragma once

#include <functional>

#include "deepspeed/comm/group/process_group.h"

namespace deepspeed::zero {

/// Runs `work`, which talks to no other rank. Where it throws on one of them, all throw: that rank its own
/// error, the others an IoError from `where` that names it, what was done ("the step") and the reason.
/// Collective.
void agree_after(const comm::ProcessGroup& group, const char* where, const char* what,
                 const std::function<void()>& work);

}  // namespace deepspeed::zero
