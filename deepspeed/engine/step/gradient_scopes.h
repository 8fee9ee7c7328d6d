// Scopes that put off the reduction of gradients: what Engine::no_sync() and coalesce_grad_reduction()
// return.
#pragma once

#include <functional>

namespace deepspeed {

/// While it lives, backwards add to this rank's gradients and no rank talks to another.
class [[nodiscard]] NoSync {
 public:
  /// `end` is called once, by the destructor.
  explicit NoSync(std::function<void()> end);
  ~NoSync();
  NoSync(const NoSync&) = delete;
  NoSync& operator=(const NoSync&) = delete;

 private:
  std::function<void()> end_;
};

/// While it lives, backwards leave their gradients with the parameters; its end reduces their sum once.
class [[nodiscard]] CoalescedReduction {
 public:
  /// `end` is called once, by the destructor: with false where an exception ends the scope, which forgets the
  /// gradients.
  explicit CoalescedReduction(std::function<void(bool reduces)> end);
  /// Throws what the reduction throws.
  ~CoalescedReduction() noexcept(false);
  CoalescedReduction(const CoalescedReduction&) = delete;
  CoalescedReduction& operator=(const CoalescedReduction&) = delete;

 private:
  std::function<void(bool)> end_;
  int exceptions_;  // under way when the scope began
};

}  // namespace deepspeed
