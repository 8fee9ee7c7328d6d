// Lets a Construction see the operators of its thread. While switched on, a dispatch key of the thread, not
// of any tensor, comes before all others.
#pragma once

#include <memory>

#include "deepspeed/device/large_blocks.h"
#include "deepspeed/zero/construction/construction.h"

namespace deepspeed::zero {

/// Returns the construction that is switched on for this thread; null if there is none.
Construction* current_construction();

/// Switches a construction on for this thread while the mode exists. Modes do not nest.
class ConstructionMode {
 public:
  explicit ConstructionMode(std::shared_ptr<Construction> construction);
  ~ConstructionMode();
  ConstructionMode(const ConstructionMode&) = delete;
  ConstructionMode& operator=(const ConstructionMode&) = delete;

 private:
  std::shared_ptr<Construction> construction_;
  device::LargeBlocksInPages pages_;
  c10::impl::IncludeDispatchKeyGuard include_{kConstructionKey};
};

}  // namespace deepspeed::zero
