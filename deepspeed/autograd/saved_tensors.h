// What autograd keeps for backward, in the hands of this library: a stack of providers in each thread says
// what becomes of the tensors that operators save, as torch.autograd.graph.saved_tensors_hooks does in
// Python.
#pragma once

#include <memory>

#include <ATen/core/Tensor.h>

#include "deepspeed/base/export.h"

namespace deepspeed::autograd {

/// Holds one saved tensor in a form of its own.
class SavedTensor {
 public:
  virtual ~SavedTensor() = default;
  /// Gives it back, as often as backward asks. The result needs no gradient.
  virtual at::Tensor unpack() = 0;
};

/// Takes the tensors that operators save while it is on top of its thread's stack.
class SavedTensorProvider {
 public:
  virtual ~SavedTensorProvider() = default;
  /// Takes a tensor, which is not to be changed and not to be kept as it is: autograd no longer notices then
  /// that it was written to, and an operator's own output would keep itself alive.
  virtual std::unique_ptr<SavedTensor> pack(const at::Tensor& tensor) = 0;
};

/// Keeps a tensor as torch does, with its check for writes: unpack() throws UsageError where it was written
/// to meanwhile.
DEEPSPEED_API std::unique_ptr<SavedTensor> keep_as_it_is(const at::Tensor& tensor);

/// Puts a provider on top of this thread's stack while it lives. Null: what is saved meanwhile is kept as
/// torch keeps it.
class DEEPSPEED_API SavedTensorScope {
 public:
  explicit SavedTensorScope(SavedTensorProvider* provider);
  ~SavedTensorScope();
  SavedTensorScope(const SavedTensorScope&) = delete;
  SavedTensorScope& operator=(const SavedTensorScope&) = delete;
};

}  // namespace deepspeed::autograd
