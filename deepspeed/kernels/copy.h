// Memory is copied here, past the caches where that is asked for. Links no torch.
#pragma once

#include <cstddef>

#include "deepspeed/kernels/arguments/stores.h"

namespace deepspeed::kernels {

/// Copies between ranges that do not overlap. All stores are visible to others before a later release.
void copy(void* to, const void* from, size_t bytes, Stores stores);

}  // namespace deepspeed::kernels
