// Hooks on what autograd saves for backward, in the hands of C++: a stack of providers a thread, of which the
// innermost takes each tensor that a node saves, and gives it back when backward asks for it. It sees all
// nodes, built-in ones and custom functions, in forward and in a recomputation.
//
// What custom functions keep elsewhere than by save_for_backward(), and what closures capture, is not seen.
#pragma once

#include <memory>

#include <ATen/core/Tensor.h>

#include "deepspeed/base/export.h"

namespace deepspeed::autograd {

/// Stands for one tensor that a node saved, as long as the node keeps it.
class DEEPSPEED_API PackedTensor {
 public:
  virtual ~PackedTensor() = default;
  /// Returns the tensor's value, of its sizes, dtype and device. Backward may ask several times (where the
  /// graph is retained), from a thread of autograd's own.
  virtual at::Tensor unpack() = 0;
};

/// Takes the tensors that are saved in its scope.
class DEEPSPEED_API SavedTensorHooks {
 public:
  virtual ~SavedTensorHooks() = default;
  /// Returns what stands for the tensor. Runs without gradients. Who keeps the tensor itself keeps its
  /// detach(), since an output that holds its own node is never freed, and compares its version when it is
  /// unpacked (KeptTensor): autograd no longer does.
  virtual std::unique_ptr<PackedTensor> pack(const at::Tensor& tensor) = 0;
  /// Whether pack() is to see a leaf that needs a gradient, such as a parameter. Else autograd keeps it, and
  /// backward gets the very tensor: unpack() cannot give that, as autograd makes a new one of its result.
  virtual bool takes_leaf(const at::TensorImpl* leaf) {
    static_cast<void>(leaf);
    return true;
  }
};

/// Gives what this thread saves to `hooks` while it lives; scopes nest, and the innermost alone is asked.
/// `hooks` may go before what it packed, whose unpack() must not need it then.
class DEEPSPEED_API SavedTensorScope {
 public:
  explicit SavedTensorScope(SavedTensorHooks& hooks);
  ~SavedTensorScope();
  SavedTensorScope(const SavedTensorScope&) = delete;
  SavedTensorScope& operator=(const SavedTensorScope&) = delete;
};

/// Turns the thread's hooks off while it lives: autograd keeps the tensors itself.
class DEEPSPEED_API NoSavedTensorHooks {
 public:
  NoSavedTensorHooks();
  ~NoSavedTensorHooks();
  NoSavedTensorHooks(const NoSavedTensorHooks&) = delete;
  NoSavedTensorHooks& operator=(const NoSavedTensorHooks&) = delete;
};

/// Returns the hooks that take what this thread saves now; null where autograd keeps it.
DEEPSPEED_API SavedTensorHooks* current_saved_tensor_hooks();

/// Keeps a tensor where it is. unpack() throws UsageError where it was written since, as autograd does for
/// what it keeps itself. A leaf without a gradient comes back as the very tensor.
class DEEPSPEED_API KeptTensor : public PackedTensor {
 public:
  explicit KeptTensor(const at::Tensor& tensor);
  at::Tensor unpack() override;

 private:
  at::Tensor value_;
  int64_t version_;
};

}  // namespace deepspeed::autograd
