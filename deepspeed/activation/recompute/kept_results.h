// In forward, keeps the results of the operators that a policy names. The recomputation gets these results
// back in order. A boxed fallback of a dispatch key below autograd sees the operators. The key is on only
// inside regions with a policy, so other code pays nothing.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>
#include <ATen/core/stack.h>

#include "deepspeed/activation/keep/activation_meter.h"
#include "deepspeed/activation/recompute/selective_policy.h"
#include "deepspeed/random/generator_state.h"

namespace c10 {
class OperatorHandle;
}

namespace deepspeed::activation {

class KeptResults {
 public:
  explicit KeptResults(std::shared_ptr<const SelectivePolicy> policy) : policy_(std::move(policy)) {}

  bool keeps(const std::string& op) const { return policy_->keeps(op); }
  /// Keeps an operator's results, which are on top of the stack. drew: whether the operator took random
  /// numbers, so that the generators' states after it are kept too.
  void keep(const c10::OperatorHandle& op, const torch::jit::Stack& stack, bool drew);
  /// Replaces the operator's arguments on the stack with the next kept results. The operator itself does not
  /// run. Throws UsageError if forward called another operator at this point.
  void give_back(const c10::OperatorHandle& op, torch::jit::Stack* stack);

  void begin_replay() {
    replays_ = true;
    next_ = 0;
  }
  bool replays() const { return replays_; }
  void clear() { calls_.clear(); }

 private:
  struct Call {
    std::string op;
    std::vector<at::Tensor> results;
    std::vector<std::unique_ptr<CountedTensor>> counted;
    std::optional<GeneratorStates> generators_after;
  };

  std::shared_ptr<const SelectivePolicy> policy_;
  std::vector<Call> calls_;
  size_t next_ = 0;
  bool replays_ = false;
};

/// Makes this thread's operators use `results` while it exists. They keep their results there in forward, and
/// take them from there in the recomputation. Null turns this off, even inside another scope.
class KeepingScope {
 public:
  explicit KeepingScope(KeptResults* results);
  ~KeepingScope();
  KeepingScope(const KeepingScope&) = delete;
  KeepingScope& operator=(const KeepingScope&) = delete;

 private:
  KeptResults* former_;
  bool was_on_;
};

}  // namespace deepspeed::activation
