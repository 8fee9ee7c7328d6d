// Intercepts every operator on an armed tensor (storage_record.h) or a view of one, in forward and backward.
// It makes the data whole around the operator. It is a boxed fallback of a dispatch key that only armed
// tensors have, registered once per process when the library is loaded. Operators on ordinary tensors pay
// nothing.
//
// - An operator needs no data if its schema says that it returns plain views, or if it only reads sizes and
//   types (zeros_like, ...).
// - If its schema says that it writes an armed tensor, it counts as a write.
// - A cast of a whole armed tensor to another floating type gives another armed tensor (StorageRecord::cast).
//   The copies that autocast keeps for backward therefore hold no data either.
// - Under autocast, an operator with an autocast rule is called a second time with the casts. The first call
//   needs no data.
#pragma once

#include <c10/core/DispatchKey.h>

namespace deepspeed::zero {

/// Marks armed tensors, so that torch calls the interception. It is the highest key that tensors have.
constexpr c10::DispatchKey kInterceptionKey = c10::DispatchKey::TESTING_ONLY_GenericWrapper;

}  // namespace deepspeed::zero
