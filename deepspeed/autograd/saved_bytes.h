// Counts what autograd keeps for backward.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include <ATen/core/Tensor.h>

#include "deepspeed/base/export.h"

namespace deepspeed::autograd {

/// Counts, while it lives, the bytes of the memory that saved tensors of this thread's operators lie in: each
/// storage once, without those of `excluded` (the model's parameters). What an inner provider takes, as that
/// of a recomputed region, does not count, but for what it keeps through autograd itself.
class DEEPSPEED_API SavedBytes {
 public:
  explicit SavedBytes(const std::vector<at::Tensor>& excluded = {});
  ~SavedBytes();
  SavedBytes(const SavedBytes&) = delete;
  SavedBytes& operator=(const SavedBytes&) = delete;

  int64_t bytes() const;

 private:
  class Counter;
  std::unique_ptr<Counter> counter_;
};

}  // namespace deepspeed::autograd
