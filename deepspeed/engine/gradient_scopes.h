// Scopes that put off the reduction of gradients: what Engine::no_sync() and coalesce_grad_reduction()
// return.
#pragma once

namespace deepspeed {

class Engine;

/// While it lives, backwards add to this rank's gradients and no rank talks to another.
class [[nodiscard]] NoSync {
 public:
  ~NoSync();
  NoSync(const NoSync&) = delete;
  NoSync& operator=(const NoSync&) = delete;

 private:
  friend class Engine;
  explicit NoSync(Engine& engine) : engine_(engine) {}
  Engine& engine_;
};

/// While it lives, backwards leave their gradients with the parameters; its end reduces their sum once.
class [[nodiscard]] CoalescedReduction {
 public:
  /// Reduces, and throws what the reduction throws; where an exception ends the scope, forgets the gradients
  /// instead.
  ~CoalescedReduction() noexcept(false);
  CoalescedReduction(const CoalescedReduction&) = delete;
  CoalescedReduction& operator=(const CoalescedReduction&) = delete;

 private:
  friend class Engine;
  explicit CoalescedReduction(Engine& engine);
  Engine& engine_;
  int exceptions_;  // under way when the scope began
};

}  // namespace deepspeed
