// Sees every operator that takes an armed tensor (storage_record.h) or a view of one, in forward and in
// backward, and makes its data whole around the operator: a boxed fallback of a dispatch key that armed
// tensors alone carry. It is registered once a process, when the library is loaded. Operators on ordinary
// tensors pay nothing.
//
// - An operator whose schema says that it returns plain views, and one that reads sizes and types alone
//   (zeros_like, ...), needs no data.
// - An operator whose schema says that it writes an armed tensor is a write.
// - A cast of a whole armed tensor to another floating type gives another armed tensor (StorageRecord::cast),
//   so that the copies that autocast keeps for backward hold no data either.
// - Under autocast an operator that has a rule there is called once more with the casts; the first call needs
//   no data.
#pragma once

#include <c10/core/DispatchKey.h>

namespace deepspeed::zero {

/// The key of armed tensors: the highest in the order of the keys that tensors have.
constexpr c10::DispatchKey kInterceptionKey = c10::DispatchKey::TESTING_ONLY_GenericWrapper;

}  // namespace deepspeed::zero
