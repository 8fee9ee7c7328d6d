#include "deepspeed/comm/group/heartbeats.h"

#include <utility>

#include "deepspeed/base/log.h"
#include "deepspeed/base/message.h"
#include "deepspeed/comm/group/store_polling.h"

namespace deepspeed::comm {
namespace {

constexpr const char* kAsked = "beat/asked";
constexpr std::chrono::milliseconds kBetweenBeats(2000), kBetweenBeatLooks(1000);
// This many checks without a new heartbeat name a rank. With the two seconds before the first check, that
// takes at most ten seconds.
constexpr int kLooksAtSilent = 6;

std::string beat_key(int rank) { return "beat/" + std::to_string(rank); }

}  // namespace

void Heartbeats::beat(c10d::Store& store, int rank) {
  if (Clock::now() < next_beat_) return;
  next_beat_ = Clock::now() + kBetweenBeats;
  // A store in a file grows with each value, so nothing is set unless a rank asks.
  const auto asked = read_if_set(store, kAsked).value_or("none has asked");
  if (std::exchange(answered_, asked) != asked) store.set(beat_key(rank), asked);
}

void Heartbeats::look(c10d::Store& store, int rank, const std::vector<AwaitedCall>& awaited,
                      const std::set<int>& unseen) {
  if (Clock::now() < next_look_) return;
  next_look_ = Clock::now() + kBetweenBeatLooks;
  std::map<int, std::string> calls;
  for (const AwaitedCall& each : awaited) {
    for (const int other : each.global_ranks) {
      if (other != rank && unseen.contains(other)) calls.emplace(other, each.call);
    }
  }
  if (calls.empty()) return beats_.clear();
  std::vector<std::string> keys;
  for (const auto& [other, call] : calls) keys.push_back(beat_key(other));
  if (!store.check(keys)) return;  // one of them has not sent a heartbeat yet
  const auto found = store.multiGet(keys);
  store.set(kAsked, message(rank, "/", ++num_asked_));
  size_t place = 0;
  for (const auto& [other, call] : calls) {
    const std::string last(found.at(place).begin(), found.at(place).end());
    ++place;
    Beat& beat = beats_[other];
    if (beat.last != last) {
      beat = {last, 0, beat.is_told};
    } else if (++beat.num_looks >= kLooksAtSilent && !std::exchange(beat.is_told, true)) {
      log::warning("[comm] rank ", other,
                   " has shown no sign of life for a while: its process is stopped, or its machine hangs or "
                   "cannot be reached; rank ",
                   rank, " waits for it in ", call);
    }
  }
}

}  // namespace deepspeed::comm
