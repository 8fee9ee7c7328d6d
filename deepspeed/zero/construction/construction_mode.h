// Lets a Construction see the operators of its thread: while one is switched on, a dispatch key that belongs
// to no tensor, but to the thread, comes before all others.
#pragma once

#include <memory>

#include <c10/core/impl/LocalDispatchKeySet.h>

#include "deepspeed/device/large_blocks.h"

namespace deepspeed::zero {

class Construction;

/// Above the key of partitioned parameters (interception.h), so that these are intercepted below it.
constexpr c10::DispatchKey kConstructionKey = c10::DispatchKey::TESTING_ONLY_GenericMode;

/// The construction that is switched on for this thread; null where there is none.
Construction* current_construction();

/// Switches a construction on for this thread, as long as the object lives. Modes do not nest.
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

/// While it lives, operators of this thread are not seen.
class ConstructionPause {
 public:
  ConstructionPause() = default;

 private:
  c10::impl::ExcludeDispatchKeyGuard exclude_{kConstructionKey};
};

}  // namespace deepspeed::zero
