// The process has one world that calls without a group mean. Internal to this folder.
#pragma once

#include <memory>
#include <mutex>

#include "deepspeed/comm/world_impl.h"

namespace deepspeed::comm {

/// Holds the world of the process. Whoever looks at it holds the mutex.
struct CurrentWorld {
  std::mutex mutex;
  std::shared_ptr<World::Impl> impl;  // null: none

  /// Returns the world, or null. An adopted one whose group is gone is left first.
  const std::shared_ptr<World::Impl>& get();
};

CurrentWorld& current_world();

}  // namespace deepspeed::comm
