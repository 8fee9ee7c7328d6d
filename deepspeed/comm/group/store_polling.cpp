#include "deepspeed/comm/group/store_polling.h"

#include <algorithm>
#include <thread>

namespace deepspeed::comm {
namespace {

using std::chrono::microseconds;

constexpr microseconds kFirstPoll(500), kLongestPoll(50000);

}  // namespace

std::optional<std::string> read_if_set(c10d::Store& store, const std::string& key) {
  if (!store.check({key})) return std::nullopt;
  const auto bytes = store.get(key);
  return std::string(bytes.begin(), bytes.end());
}

bool appears(c10d::Store& store, const std::string& key, std::chrono::steady_clock::time_point deadline) {
  for (microseconds pause = kFirstPoll; !store.check({key}); pause = std::min(pause * 5 / 4, kLongestPoll)) {
    if (std::chrono::steady_clock::now() >= deadline) return false;
    std::this_thread::sleep_for(pause);
  }
  return true;
}

}  // namespace deepspeed::comm
