#include "cuda_emulation/emulation/fiber.h"

#include <cstdlib>
#include <new>

#include <boost/context/detail/fcontext.hpp>
#include <sys/mman.h>

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#define IF_ASAN(...) __VA_ARGS__
#else
#define IF_ASAN(...)
#endif

namespace emulation {
namespace {

namespace context = boost::context::detail;

constexpr size_t kGuardBytes = size_t{64} << 10;  // whole pages of every system

}  // namespace

Fiber::Fiber(size_t stack_bytes) : bytes_(stack_bytes) {
  void* const all = ::mmap(nullptr, kGuardBytes + bytes_, PROT_READ | PROT_WRITE,
                           MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (all == MAP_FAILED) throw std::bad_alloc();
  ::mprotect(all, kGuardBytes, PROT_NONE);  // a kernel that recurses without end stops here
  stack_ = static_cast<char*>(all) + kGuardBytes;
  // Bodies begin at different places of a page. Otherwise all stacks would use the same few lines of the
  // caches.
  static size_t fibers = 0;
  offset_ = fibers++ * 448 % 8192;
}

Fiber::~Fiber() { ::munmap(static_cast<char*>(stack_) - kGuardBytes, kGuardBytes + bytes_); }

void Fiber::start(Body body, void* argument) {
  body_ = body;
  argument_ = argument;
  if (is_dropped_) {  // what its frames have poisoned must not meet the new body
    IF_ASAN(__asan_unpoison_memory_region(stack_, bytes_);)
    asan_.fiber = nullptr;
  }
  is_dropped_ = true;
  context_ = context::make_fcontext(static_cast<char*>(stack_) + bytes_ - offset_, bytes_ - offset_,
                                    [](context::transfer_t from) {
                                      auto& fiber = *static_cast<Fiber*>(from.data);
                                      fiber.scheduler_ = from.fctx;
                                      fiber.run();
                                    });
}

void Fiber::run() {
  IF_ASAN(__sanitizer_finish_switch_fiber(nullptr, &asan_.scheduler_stack, &asan_.scheduler_bytes);)
  body_(argument_);
  is_dropped_ = false;
  leave();
  std::abort();  // a body that has returned is not entered again
}

void Fiber::enter() {
  IF_ASAN(__sanitizer_start_switch_fiber(&asan_.scheduler, stack_, bytes_);)
  context_ = context::jump_fcontext(context_, this).fctx;
  IF_ASAN(__sanitizer_finish_switch_fiber(asan_.scheduler, nullptr, nullptr);)
}

void Fiber::leave() {
  IF_ASAN(__sanitizer_start_switch_fiber(&asan_.fiber, asan_.scheduler_stack, asan_.scheduler_bytes);)
  scheduler_ = context::jump_fcontext(scheduler_, nullptr).fctx;
  IF_ASAN(__sanitizer_finish_switch_fiber(asan_.fiber, &asan_.scheduler_stack, &asan_.scheduler_bytes);)
}

}  // namespace emulation
