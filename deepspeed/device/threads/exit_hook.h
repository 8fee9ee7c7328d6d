// What has to end before the process does.
#pragma once

#include <functional>
#include <memory>

#include "deepspeed/base/export.h"

namespace deepspeed {

/// Calls `function` when the process ends by exit() or by a return from main(). Threads that run torch's
/// operations end there: later, torch's own statics are destroyed under them. Hooks run newest first. A
/// static that was made after the hook is destroyed before it runs, so a hook is made as late as can be.
class DEEPSPEED_API ExitHook {
 public:
  enum class Turn {
    kNewestFirst,
    kBeforeAll,  ///< For what is said to others, while all threads and connections are there.
  };
  explicit ExitHook(std::function<void()> function, Turn turn = Turn::kNewestFirst);
  /// Takes the function back, and waits while another thread runs it.
  ~ExitHook();
  ExitHook(const ExitHook&) = delete;
  ExitHook& operator=(const ExitHook&) = delete;

 private:
  std::function<void()> function_;
};

}  // namespace deepspeed
