#include "deepspeed/device/threads/exit_hook.h"

#include <algorithm>
#include <cstdlib>
#include <mutex>
#include <utility>
#include <vector>

namespace deepspeed {
namespace {

// Never destroyed, since static objects may remove their hooks until the process ends.
struct Hooks {
  std::recursive_mutex mutex;  // recursive: a hook may remove others
  std::vector<const std::function<void()>*> functions, before_all;

  static Hooks& instance() {
    static auto& hooks = *new Hooks;
    return hooks;
  }
};

void run_newest_of(std::vector<const std::function<void()>*>& functions) {
  if (functions.empty()) return;
  const auto function = *functions.back();
  functions.pop_back();
  function();
}

void run_newest() {
  auto& hooks = Hooks::instance();
  const std::lock_guard lock(hooks.mutex);
  while (!hooks.before_all.empty()) run_newest_of(hooks.before_all);
  run_newest_of(hooks.functions);
}

}  // namespace

ExitHook::ExitHook(std::function<void()> function, Turn turn) : function_(std::move(function)) {
  auto& hooks = Hooks::instance();
  const std::lock_guard lock(hooks.mutex);
  (turn == Turn::kBeforeAll ? hooks.before_all : hooks.functions).push_back(&function_);
  std::atexit(run_newest);  // one call per hook, so that each has its place among the statics
}

ExitHook::~ExitHook() {
  auto& hooks = Hooks::instance();
  const std::lock_guard lock(hooks.mutex);
  std::erase(hooks.functions, &function_);
  std::erase(hooks.before_all, &function_);
}

}  // namespace deepspeed
