// Lets a Construction see the operators of its thread. While switched on, a dispatch key of the thread, not
// of any tensor, comes before all others.
#pragma once

#include <memory>

#include <c10/core/impl/LocalDispatchKeySet.h>

#include "deepspeed/device/large_blocks.h"

namespace deepspeed::zero {

class Construction;

/// Makes torch call the Construction first. It comes before the key of partitioned parameters
/// (interception.h).
constexpr c10::DispatchKey kConstructionKey = c10::DispatchKey::TESTING_ONLY_GenericMode;

/// Returns the construction that is switched on for this thread; null if there is none.
Construction* current_construction();

/// Switches a construction on for this thread while it exists. Modes do not nest.
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

/// Hides this thread's operators from the Construction while it exists.
class ConstructionPause {
 public:
  ConstructionPause() = default;

 private:
  c10::impl::ExcludeDispatchKeyGuard exclude_{kConstructionKey};
};

}  // namespace deepspeed::zero
