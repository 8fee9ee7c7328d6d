// Holds what checkpointing::configure() has set for the process.
#pragma once

#include <memory>

#include "deepspeed/activation/keep/checkpoint_options.h"
#include "deepspeed/activation/keep/slot_buffers.h"
#include "deepspeed/comm/group/process_group.h"

namespace deepspeed::activation {

struct Configuration {
  CheckpointOptions options;
  comm::ProcessGroup model_parallel_group;  // empty: one rank
  std::shared_ptr<SlotBuffers> buffers = std::make_shared<SlotBuffers>(0);

  bool is_set = false;  // configure() was called

  int ranks() const { return model_parallel_group ? model_parallel_group.size() : 1; }
};

/// Returns the current configuration; the defaults before configure().
std::shared_ptr<const Configuration> current_configuration();
/// Replaces the current configuration, for regions that start from now on.
void set_configuration(Configuration configuration);

}  // namespace deepspeed::activation
