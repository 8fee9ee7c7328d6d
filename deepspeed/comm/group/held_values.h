// Compares values that the ranks of a group must agree on in a collective, such as learning rates. A hash of
// the values is part of the tags of calls (collective_call.h), so the comparison costs no message.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

namespace deepspeed::comm {

/// Lists values as texts by unique name, in the order in which differences are reported.
using NamedTexts = std::vector<std::pair<std::string, std::string>>;

/// Holds the values of a rank at one moment.
struct HeldValues {
  uint64_t hash = 0;                     // the same on all ranks if the values are; not 0
  std::function<NamedTexts()> describe;  // thread-safe
};

/// Holds the current values, for the handles of groups (ProcessGroup::holding()). Thread-safe.
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

/// Returns up to four differences: "lr is 0.1 on rank 0 and 0.9 on rank 1". The names that exist on both
/// ranks come first, in the order of `values`; "" if nothing differs.
std::string describe_differences(int rank, const NamedTexts& values, int other_rank, const NamedTexts& other);

}  // namespace deepspeed::comm
