// Limits how long and how many clients may wait at a listening socket. A waiting client has not shown yet
// that it belongs to the job.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <set>
#include <utility>

#include "deepspeed/base/export.h"
#include "deepspeed/net/socket.h"

namespace deepspeed::net {

/// Lists connected clients that have not been admitted yet, by the caller's numbers. Each has ten seconds. At
/// most `places` may wait: a further client replaces the oldest, but every client has at least one second.
/// The caller drops the clients that to_make_room() and overdue() return. A rank dropped this way connects
/// again.
class DEEPSPEED_API Gate {
 public:
  explicit Gate(size_t places) : places_(places) {}

  void enter(uint64_t client);
  /// Frees the place of a waiting client. Call it once the client is admitted or has disconnected.
  void leave(uint64_t client);

  bool is_full() const { return waiting_.size() >= places_; }
  /// Returns the client that has waited longest, to be dropped for a new one. Returns nothing if none waits,
  /// or if that client entered less than a second ago.
  std::optional<uint64_t> to_make_room() const;
  /// Returns a client whose ten seconds are over, or nothing.
  std::optional<uint64_t> overdue() const;
  /// Returns the time from which overdue() returns the oldest client; unset if none waits.
  Deadline next_deadline() const;

 private:
  using Clock = std::chrono::steady_clock;

  size_t places_;
  std::set<std::pair<Clock::time_point, uint64_t>> waiting_;  // by time of entry
};

}  // namespace deepspeed::net
