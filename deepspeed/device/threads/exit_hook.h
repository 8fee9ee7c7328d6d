// Runs what must end before the process does.
#pragma once

#include <functional>
#include <memory>

#include "deepspeed/base/export.h"

namespace deepspeed {

/// Calls `function` when the process ends by exit() or by returning from main(). Threads that run torch
/// operations must end in a hook, because torch's own statics are destroyed later. Hooks run newest first. A
/// static made after a hook is destroyed before that hook runs, so make a hook as late as possible.
class DEEPSPEED_API ExitHook {
 public:
  enum class Turn {
    kNewestFirst,
    kBeforeAll,  ///< for messages to others, while all threads and connections exist
  };
  explicit ExitHook(std::function<void()> function, Turn turn = Turn::kNewestFirst);
  /// Removes the hook, and waits if another thread is running it.
  ~ExitHook();
  ExitHook(const ExitHook&) = delete;
  ExitHook& operator=(const ExitHook&) = delete;

 private:
  std::function<void()> function_;
};

}  // namespace deepspeed
