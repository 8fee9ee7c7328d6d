// Provides C++ hooks for the tensors that autograd saves for backward. Each thread has a stack of hooks. The
// innermost hooks take each tensor that a node saves, and return it when backward asks for it. They see all
// nodes, built-in ones and custom functions, in forward and in a recomputation.
//
// Hooks do not see what custom functions keep by other means than save_for_backward(), nor what closures
// capture.
#pragma once

#include <memory>

#include <ATen/core/Tensor.h>

#include "deepspeed/base/export.h"

namespace deepspeed::autograd {

/// Represents one tensor that a node saved, as long as the node keeps it.
class DEEPSPEED_API PackedTensor {
 public:
  virtual ~PackedTensor() = default;
  /// Returns the tensor's value, with its sizes, dtype and device. Backward may call it several times (if the
  /// graph is retained), from one of autograd's threads.
  virtual at::Tensor unpack() = 0;
};

/// Takes the tensors that autograd saves in a SavedTensorScope of these hooks.
class DEEPSPEED_API SavedTensorHooks {
 public:
  virtual ~SavedTensorHooks() = default;
  /// Returns the object that represents the tensor. Runs without gradients. To keep the tensor itself, keep
  /// tensor.detach(): an output that holds its own node is never freed. Check its version in unpack(), as
  /// KeptTensor does, because autograd no longer checks it.
  virtual std::unique_ptr<PackedTensor> pack(const at::Tensor& tensor) = 0;
  /// Returns whether pack() should get a leaf that needs a gradient, such as a parameter. Otherwise autograd
  /// keeps the leaf and backward gets the identical tensor. unpack() cannot return the identical tensor,
  /// because autograd makes a new one from its result.
  virtual bool takes_leaf(const at::TensorImpl* leaf) {
    static_cast<void>(leaf);
    return true;
  }
};

/// Passes what this thread saves to `hooks` while it exists. Scopes nest; only the innermost is asked.
/// `hooks` may be destroyed before the PackedTensors that it made; unpack() must not need `hooks` then.
class DEEPSPEED_API SavedTensorScope {
 public:
  explicit SavedTensorScope(SavedTensorHooks& hooks);
  ~SavedTensorScope();
  SavedTensorScope(const SavedTensorScope&) = delete;
  SavedTensorScope& operator=(const SavedTensorScope&) = delete;
};

/// Turns the thread's hooks off while it exists, so that autograd keeps the tensors itself.
class DEEPSPEED_API NoSavedTensorHooks {
 public:
  NoSavedTensorHooks();
  ~NoSavedTensorHooks();
  NoSavedTensorHooks(const NoSavedTensorHooks&) = delete;
  NoSavedTensorHooks& operator=(const NoSavedTensorHooks&) = delete;
};

/// Returns the hooks that take what this thread saves; null if autograd keeps it.
DEEPSPEED_API SavedTensorHooks* current_saved_tensor_hooks();

/// Keeps a tensor as it is. unpack() throws UsageError if the tensor was written in place since, as autograd
/// does for tensors that it keeps. A leaf that needs no gradient is returned as the identical tensor.
class DEEPSPEED_API KeptTensor : public PackedTensor {
 public:
  explicit KeptTensor(const at::Tensor& tensor);
  at::Tensor unpack() override;

 private:
  at::Tensor value_;
  int64_t version_;
};

}  // namespace deepspeed::autograd
