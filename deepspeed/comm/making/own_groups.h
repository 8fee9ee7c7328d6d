// A process counts the groups that it made of each name, so that ranks pair the same ones, however their
// threads come to them. Internal to this folder.
#pragma once

#include <cstdint>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

namespace deepspeed::comm {

/// Numbers groups by name: the nth of a name on one rank belongs to the nth of that name on the others. One
/// thread makes them one after the other; of two threads that do, either may be the first on a rank, so they
/// need different names, or purposes that make a mistaken pair come to light. Any thread may call.
class OwnGroups {
 public:
  /// Counts on while it lives.
  class Making {
   public:
    Making(OwnGroups& groups, const std::string& name, const std::string& purpose);
    ~Making();
    Making(const Making&) = delete;
    Making& operator=(const Making&) = delete;

    /// Returns the group's number, from 1 on.
    int64_t number() const { return number_; }
    /// Says that the group is made; `lifetime` ends with it.
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

  /// Begins to make a group. Throws UsageError where ranks could pair others.
  int64_t begin(const std::string& name, const std::string& purpose);

  std::mutex mutex_;
  std::map<std::string, OfOneName> names_;
};

}  // namespace deepspeed::comm
