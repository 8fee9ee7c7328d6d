// Counts the groups that a process made of each name, so that ranks pair the right ones in any thread order.
// Internal to this folder.
#pragma once

#include <cstdint>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

namespace deepspeed::comm {

/// Numbers the groups of each name. The nth group of a name on one rank is paired with the nth group of that
/// name on the others. If two threads make groups of one name, their order may differ between ranks. So
/// threads must use different names, or different purposes: users with different purposes notice a wrong pair
/// by their data. Thread-safe.
class OwnGroups {
 public:
  /// Represents a group while it is being made, and gives it a number.
  class Making {
   public:
    Making(OwnGroups& groups, const std::string& name, const std::string& purpose);
    ~Making();
    Making(const Making&) = delete;
    Making& operator=(const Making&) = delete;

    /// Returns the group's number among those of its name, from 1 on.
    int64_t number() const { return number_; }
    /// Records that the group is made. `lifetime` expires with the group.
    void done(std::weak_ptr<void> lifetime);

   private:
    OwnGroups& groups_;
    const std::string name_, purpose_;
    int64_t number_ = 0;
  };

 private:
  struct Held {
    std::weak_ptr<void> lifetime;
    std::thread::id maker;
    std::string purpose;
  };
  struct OfOneName {
    int64_t count = 0;
    bool is_being_made = false;
    std::list<Held> held;
  };

  /// Returns the number of a group that is about to be made. Throws UsageError if ranks could pair the wrong
  /// groups.
  int64_t begin(const std::string& name, const std::string& purpose);

  std::mutex mutex_;
  std::map<std::string, OfOneName> names_;
};

}  // namespace deepspeed::comm
