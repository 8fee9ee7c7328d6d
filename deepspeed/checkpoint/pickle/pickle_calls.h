// Builds values from the calls in a pickle. A pickle names functions and their arguments, but nothing is ever
// called. Tensors and plain values are built directly; any other call is kept as an Object. Numbers of type
// uint32_t are nodes of the graph; each builder returns the node that it added.
#pragma once

#include <functional>
#include <string>

#include "deepspeed/checkpoint/pickle/pickle_graph.h"

namespace deepspeed::checkpoint {

/// Adds a class, function or dtype to `graph` and returns its node number. Throws CheckpointError for an
/// invalid name.
uint32_t add_global(PickleGraph& graph, Global name);

/// Builds the result of calling `callable` with the tuple `arguments`. Throws CheckpointError.
uint32_t build_call(PickleGraph& graph, uint32_t callable, uint32_t arguments);

/// Builds the object that `__new__` of the class `callable` would return. `keywords` is a dict, or -1 for
/// none. Throws CheckpointError.
uint32_t build_new(PickleGraph& graph, uint32_t callable, uint32_t arguments, int64_t keywords = -1);

/// Sets the state of a kept object (`__setstate__`, `__dict__`). The state of an ordered dict is dropped.
/// Throws CheckpointError.
void set_state(PickleGraph& graph, uint32_t object, uint32_t state);

/// Returns the storage of record `key`, of `num_bytes` bytes. Throws CheckpointError.
using StorageLoader = std::function<at::Storage(const std::string& key, int64_t num_bytes)>;

/// Builds the storage of the persistent id `("storage", class, key, device, numel)`. `load` returns its
/// bytes. Throws CheckpointError.
uint32_t build_storage(PickleGraph& graph, uint32_t persistent_id, const StorageLoader& load);

}  // namespace deepspeed::checkpoint
