// Selects which results of a region a recomputation reuses from forward.
#pragma once

#include <memory>
#include <string>
#include <unordered_set>
#include <utility>
#include <vector>

#include "deepspeed/base/export.h"

namespace deepspeed::activation {

/// Names operators whose results are kept because they are expensive to compute and small. Everything else in
/// a region is recomputed.
class DEEPSPEED_API SelectivePolicy {
 public:
  /// operators: names below autograd, such as "aten::mm"; all overloads count except those that write into an
  /// argument. Throws UsageError for a name unknown to torch, and for operators that write an argument,
  /// return a view of one, or return nothing, as the fused operators of deepspeed::ops do.
  explicit SelectivePolicy(const std::vector<std::string>& operators);

  /// Keeps the results of matrix products, convolutions and attention. The idea, to keep what is expensive to
  /// compute, is from Korthikanti et al., "Reducing Activation Recomputation in Large Transformer Models",
  /// 2022.
  static SelectivePolicy matmuls_and_attention();
  /// Keeps only attention.
  static SelectivePolicy attention();

  bool keeps(const std::string& op) const { return operators_.contains(op); }

 private:
  std::unordered_set<std::string> operators_;
};

/// Points to a policy, which many regions may share, or is null.
class SharedPolicy : public std::shared_ptr<const SelectivePolicy> {
 public:
  using std::shared_ptr<const SelectivePolicy>::shared_ptr;
  SharedPolicy(std::shared_ptr<const SelectivePolicy> policy) : shared_ptr(std::move(policy)) {}  // NOLINT
  SharedPolicy(SelectivePolicy policy)  // NOLINT: a policy is what a region is given
      : shared_ptr(std::make_shared<const SelectivePolicy>(std::move(policy))) {}
};

}  // namespace deepspeed::activation
