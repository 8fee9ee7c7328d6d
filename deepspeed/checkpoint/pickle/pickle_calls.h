// Calls inside a pickle build values here. A pickle names a function and its arguments; nothing is ever
// called: each name of a fixed list is answered here by building the value that it stands for.
#pragma once

#include <functional>
#include <string>

#include "deepspeed/checkpoint/pickle/pickle_graph.h"

namespace deepspeed::checkpoint {

/// Adds the global `module.name` to `graph`, a dtype at once, else a node that `build_call` understands, and
/// returns its number. Throws CheckpointError, naming it, where it is not on the list.
uint32_t add_global(PickleGraph& graph, std::string module, std::string name);

/// Builds what calling `callable` with the tuple `arguments` would return. Throws CheckpointError.
uint32_t build_call(PickleGraph& graph, uint32_t callable, uint32_t arguments);

/// Sets the state of an object (`__setstate__`, `__dict__`). Throws CheckpointError.
void set_state(PickleGraph& graph, uint32_t object, uint32_t state);

/// Gives the storage of record `key` with `num_bytes` bytes. Throws CheckpointError.
using StorageLoader = std::function<at::Storage(const std::string& key, int64_t num_bytes)>;

/// Builds the storage that the persistent id `("storage", class, key, device, numel)` stands for.
uint32_t build_storage(PickleGraph& graph, uint32_t persistent_id, const StorageLoader& load);

}  // namespace deepspeed::checkpoint
