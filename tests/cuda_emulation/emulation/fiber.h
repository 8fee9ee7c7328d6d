// A piece of work with a stack of its own, which can be left and entered again.
#pragma once

#include <cstddef>

namespace emulation {

/// Switches stacks by Boost.Context, and tells AddressSanitizer which stack runs.
class Fiber {
 public:
  using Body = void (*)(void*);

  explicit Fiber(size_t stack_bytes);
  ~Fiber();
  Fiber(const Fiber&) = delete;
  Fiber& operator=(const Fiber&) = delete;

  /// Runs body(argument) when it is entered next. What an earlier body has not finished is dropped.
  void start(Body body, void* argument);
  /// Runs the fiber until it leaves or its body returns; the scheduler calls it.
  void enter();
  /// Goes back to the scheduler; the body calls it.
  void leave();

  const char* stack_begin() const { return static_cast<const char*>(stack_); }
  const char* stack_end() const { return stack_begin() + bytes_; }

 private:
  struct Asan {  // what AddressSanitizer keeps of each side
    void *fiber = nullptr, *scheduler = nullptr;
    const void* scheduler_stack = nullptr;
    size_t scheduler_bytes = 0;
  };

  void run();

  void* stack_;
  size_t bytes_;
  size_t offset_;              // from the stack's end to where bodies begin
  void* context_ = nullptr;    // of the fiber, while the scheduler runs
  void* scheduler_ = nullptr;  // the scheduler's, while the fiber runs
  Body body_ = nullptr;
  void* argument_ = nullptr;
  bool is_dropped_ = false;
  Asan asan_;
};

}  // namespace emulation
