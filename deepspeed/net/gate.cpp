#include "deepspeed/net/gate.h"

#include <algorithm>

namespace deepspeed::net {
namespace {

constexpr std::chrono::seconds kMostTime(10), kLeastTime(1);

}  // namespace

void Gate::enter(uint64_t client) { waiting_.emplace(Clock::now(), client); }

void Gate::leave(uint64_t client) {
  std::erase_if(waiting_, [&](const auto& entry) { return entry.second == client; });
}

std::optional<uint64_t> Gate::to_make_room() const {
  if (waiting_.empty() || Clock::now() - waiting_.begin()->first < kLeastTime) return std::nullopt;
  return waiting_.begin()->second;
}

std::optional<uint64_t> Gate::overdue() const {
  const Deadline next = next_deadline();
  if (!next || *next > Clock::now()) return std::nullopt;
  return waiting_.begin()->second;
}

Deadline Gate::next_deadline() const {
  if (waiting_.empty()) return std::nullopt;
  return waiting_.begin()->first + kMostTime;
}

}  // namespace deepspeed::net
