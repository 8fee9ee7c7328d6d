// Which results of a region a recomputation takes from forward instead of computing them again.
#pragma once

#include <memory>
#include <string>
#include <unordered_set>
#include <utility>
#include <vector>

#include "deepspeed/base/export.h"

namespace deepspeed::activation {

/// Names operators whose results are kept: what is expensive to compute and small to keep. All else of a
/// region is computed again.
class DEEPSPEED_API SelectivePolicy {
 public:
  /// operators: names below autograd, as "aten::mm", all overloads of each but those that write into an
  /// argument. Throws UsageError for a name that torch does not know, and for operators that write an
  /// argument, return a view of one, or return nothing, as the fused operators of deepspeed::ops do.
  explicit SelectivePolicy(const std::vector<std::string>& operators);

  /// Products of matrices, convolutions and attention (Korthikanti et al., "Reducing Activation Recomputation
  /// in Large Transformer Models", 2022, keep what is expensive in the same way).
  static SelectivePolicy matmuls_and_attention();
  /// Attention alone.
  static SelectivePolicy attention();

  bool keeps(const std::string& op) const { return operators_.contains(op); }

 private:
  std::unordered_set<std::string> operators_;
};

/// A policy, which many regions share, or none.
class SharedPolicy : public std::shared_ptr<const SelectivePolicy> {
 public:
  using std::shared_ptr<const SelectivePolicy>::shared_ptr;
  SharedPolicy(std::shared_ptr<const SelectivePolicy> policy) : shared_ptr(std::move(policy)) {}  // NOLINT
  SharedPolicy(SelectivePolicy policy)  // NOLINT: a policy is what a region is given
      : shared_ptr(std::make_shared<const SelectivePolicy>(std::move(policy))) {}
};

}  // namespace deepspeed::activation
