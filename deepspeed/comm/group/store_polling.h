// The store is asked here without keeping it from the process' other threads. Internal to this folder.
#pragma once

#include <chrono>
#include <optional>
#include <string>

#include <torch/csrc/distributed/c10d/Store.hpp>

namespace deepspeed::comm {

/// Returns the value of `key`, without waiting for it.
std::optional<std::string> read_if_set(c10d::Store& store, const std::string& key);

/// Asks again and again, less often as time goes by, since a wait of the store holds up every other call of
/// this process. False where the key is not there at the deadline.
bool appears(c10d::Store& store, const std::string& key, std::chrono::steady_clock::time_point deadline);

}  // namespace deepspeed::comm
