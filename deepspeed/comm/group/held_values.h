// The ranks of a group must hold some values alike where they meet in a collective: learning rates, say. What
// they hold rides on the tags of the calls (collective_call.h), so that it costs no message.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

namespace deepspeed::comm {

/// Lists values by name, as texts, in the order in which differences are named. Each name stands there once.
using NamedTexts = std::vector<std::pair<std::string, std::string>>;

/// Holds the values of one moment.
struct HeldValues {
  uint64_t hash = 0;                     // the same on all ranks where the values are; not 0
  std::function<NamedTexts()> describe;  // any thread may call it
};

/// Holds the present values, for the handles of groups (ProcessGroup::holding()). Any thread may call.
class CurrentValues {
 public:
  void set(HeldValues values) {
    auto made = std::make_shared<const HeldValues>(std::move(values));
    const std::lock_guard lock(mutex_);
    values_.swap(made);
  }
  /// Returns the values, or null before the first set().
  std::shared_ptr<const HeldValues> get() const {
    const std::lock_guard lock(mutex_);
    return values_;
  }

 private:
  mutable std::mutex mutex_;
  std::shared_ptr<const HeldValues> values_;
};

/// Returns "lr is 0.1 on rank 0 and 0.9 on rank 1": the first few names whose values differ, those first that
/// both ranks have; "" where nothing differs.
std::string describe_differences(int rank, const NamedTexts& values, int other_rank, const NamedTexts& other);

}  // namespace deepspeed::comm
