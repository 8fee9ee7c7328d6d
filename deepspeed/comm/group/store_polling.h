// Polls the store without blocking the process's other threads. Internal to this folder.
#pragma once

#include <chrono>
#include <optional>
#include <string>

#include <torch/csrc/distributed/c10d/Store.hpp>

namespace deepspeed::comm {

/// Returns the value of `key` if it is set, without waiting.
std::optional<std::string> read_if_set(c10d::Store& store, const std::string& key);

/// Polls with growing pauses until the key is set or the deadline passes. Returns whether it is set. A wait
/// in the store would block every other call of this process.
bool appears(c10d::Store& store, const std::string& key, std::chrono::steady_clock::time_point deadline);

}  // namespace deepspeed::comm
