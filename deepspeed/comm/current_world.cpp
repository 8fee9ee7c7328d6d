#include "deepspeed/comm/current_world.h"

#include "deepspeed/comm/making/given_group.h"

namespace deepspeed::comm {

const std::shared_ptr<WorldImpl>& CurrentWorld::get() {
  if (impl && impl->is_over()) {
    impl->end(given_group_is_gone(impl->job().rank));
    impl = nullptr;
  }
  return impl;
}

// Never destroyed: at exit, a backend's threads may outlive statics that they use.
CurrentWorld& current_world() {
  static auto& instance = *new CurrentWorld;
  return instance;
}

}  // namespace deepspeed::comm
