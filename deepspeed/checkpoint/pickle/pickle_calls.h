// Calls inside a pickle build values here. A pickle names a function and its arguments; nothing is ever
// called: tensors and plain values are built in place of a call, and any other call is kept as an Object.
#pragma once

#include <functional>
#include <string>

#include "deepspeed/checkpoint/pickle/pickle_graph.h"

namespace deepspeed::checkpoint {

/// Adds a class or a function, or a dtype, to `graph` and returns its number. Throws CheckpointError for what
/// cannot be a name.
uint32_t add_global(PickleGraph& graph, Global name);

/// Builds what calling `callable` with the tuple `arguments` would return. Throws CheckpointError.
uint32_t build_call(PickleGraph& graph, uint32_t callable, uint32_t arguments);

/// Builds the object that `__new__` of the class `callable` would return. `keywords`: a dict, or -1. Throws
/// CheckpointError.
uint32_t build_new(PickleGraph& graph, uint32_t callable, uint32_t arguments, int64_t keywords = -1);

/// Sets the state of an object (`__setstate__`, `__dict__`). Throws CheckpointError.
void set_state(PickleGraph& graph, uint32_t object, uint32_t state);

/// Gives the storage of record `key` with `num_bytes` bytes. Throws CheckpointError.
using StorageLoader = std::function<at::Storage(const std::string& key, int64_t num_bytes)>;

/// Builds the storage that the persistent id `("storage", class, key, device, numel)` stands for. Throws
/// CheckpointError.
uint32_t build_storage(PickleGraph& graph, uint32_t persistent_id, const StorageLoader& load);

}  // namespace deepspeed::checkpoint
