// Selective recomputation: the results of named operators, such as products of matrices and attention, are
// kept, and the cheap rest is computed again. Source: Korthikanti et al., "Reducing Activation Recomputation
// in Large Transformer Models" (2022).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <ATen/core/ivalue.h>

namespace deepspeed::checkpointing {

/// The results of the kept operators of a region, in the order of their calls.
class KeptResults {
 public:
  /// Begins to give results back instead of computing them.
  void begin_replay() {
    next_ = 0;
    replays_ = true;
  }
  bool replays() const { return replays_; }
  void add(const void* op, std::vector<c10::IValue> results);
  /// Gives the results of the next call back. Throws UsageError where forward called another operator.
  std::vector<c10::IValue> take(const void* op, const std::string& name);
  int64_t bytes() const;

 private:
  struct Call {
    const void* op = nullptr;
    std::vector<c10::IValue> results;
  };
  std::vector<Call> calls_;
  size_t next_ = 0;
  bool replays_ = false;
};

/// Operators whose results may be kept: their names in aten, below autograd.
const std::vector<std::string>& operators_to_keep();

/// Keeps, or gives back, the results of operators of this thread while it lives; null: computes as usual,
/// within the scope of an outer region.
class KeepingScope {
 public:
  explicit KeepingScope(KeptResults* results);
  ~KeepingScope();
  KeepingScope(const KeepingScope&) = delete;
  KeepingScope& operator=(const KeepingScope&) = delete;

 private:
  KeptResults* outer_;
  bool was_on_;
};

}  // namespace deepspeed::checkpointing
