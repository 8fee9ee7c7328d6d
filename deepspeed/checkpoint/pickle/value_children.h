// A walk over checkpoint values finds here what lies directly inside of one: items, keys, arguments, states.
#pragma once

#include <functional>

#include "deepspeed/checkpoint/pickle/value.h"

namespace deepspeed::checkpoint {

/// Calls `visit` with each value directly inside of `value`, in the order in which a pickle has them.
void visit_children(const Value& value, const std::function<void(const Value&)>& visit);

/// Calls `change` with each value directly inside of `value`; what copies of `value` share is copied before.
void change_children(Value& value, const std::function<void(Value&)>& change);

}  // namespace deepspeed::checkpoint
