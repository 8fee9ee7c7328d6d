#include "deepspeed/comm/making/own_groups.h"

#include <utility>

#include "deepspeed/base/error.h"

namespace deepspeed::comm {
namespace {

[[noreturn]] void refuse_pair(const std::string& name, const char* what) {
  raise<UsageError>("the group '", name, "': another thread ", what,
                    ", so that ranks may take one for the other; expected groups of one name from one "
                    "thread, in one order on all ranks: give this one a name of its own (for an engine "
                    "InitializeOptions::engine_name), the same on all ranks");
}

}  // namespace

int64_t OwnGroups::begin(const std::string& name, const std::string& purpose) {
  const std::lock_guard lock(mutex_);
  OfOneName& groups = names_[name];
  if (groups.is_being_made) refuse_pair(name, "makes one of this name at the same time");
  std::erase_if(groups.held, [](const Held& held) { return held.lifetime.expired(); });
  for (const Held& held : groups.held) {
    if (held.maker == std::this_thread::get_id() || held.purpose != purpose) continue;
    refuse_pair(name, "made one of this name for the same purpose, which still exists");
  }
  groups.is_being_made = true;
  return ++groups.count;
}

OwnGroups::Making::Making(OwnGroups& groups, const std::string& name, const std::string& purpose)
    : groups_(groups), name_(name), purpose_(purpose), number_(groups.begin(name, purpose)) {}

OwnGroups::Making::~Making() {
  const std::lock_guard lock(groups_.mutex_);
  groups_.names_[name_].is_being_made = false;
}

void OwnGroups::Making::done(std::weak_ptr<void> lifetime) {
  const std::lock_guard lock(groups_.mutex_);
  groups_.names_[name_].held.push_back({std::move(lifetime), std::this_thread::get_id(), purpose_});
}

}  // namespace deepspeed::comm
