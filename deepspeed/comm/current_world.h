// Holds the world used by calls that give no group. Internal to this folder.
#pragma once

#include <memory>
#include <mutex>

#include "deepspeed/comm/world.h"

namespace deepspeed::comm {

/// Holds the world of the process. Lock the mutex to use it.
struct CurrentWorld {
  std::mutex mutex;
  std::shared_ptr<WorldImpl> impl;  // null: none

  /// Returns the world, or null. Leaves an adopted world first if its c10d group no longer exists.
  const std::shared_ptr<WorldImpl>& get();
};

CurrentWorld& current_world();

}  // namespace deepspeed::comm
