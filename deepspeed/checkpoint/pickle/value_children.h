// Visits the values directly inside a checkpoint value: items, keys, arguments and states.
#pragma once

#include <functional>

#include "deepspeed/checkpoint/pickle/value.h"

namespace deepspeed::checkpoint {

/// Calls `visit` with each value directly inside `value`, in pickle order.
void visit_children(const Value& value, const std::function<void(const Value&)>& visit);

/// Calls `change` with each value directly inside `value`. Parts shared with copies of `value` are copied
/// first.
void change_children(Value& value, const std::function<void(Value&)>& change);

}  // namespace deepspeed::checkpoint
