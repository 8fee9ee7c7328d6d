// Moves bytes of tensors to host memory for a while and frees the device's memory. The tensors, and all their
// views, keep their identity and sizes.
#pragma once

#include <vector>

#include <ATen/core/Tensor.h>
#include <c10/core/Storage.h>

namespace deepspeed::zero {

/// Holds the parked bytes. Until restore(), accessing a parked tensor ends the process, so the owner must
/// prevent it.
class ParkedStorages {
 public:
  /// Parks the whole storage of `tensor`, with whatever else is in it. A second call for it does nothing.
  /// pin_memory: into page-locked memory. non_blocking: the host then does not wait for the copy.
  void park(const at::Tensor& tensor, bool pin_memory, bool non_blocking);
  /// Leaves a parked parameter without elements until restore(). Call it if user code can reach the
  /// parameter: using it is then an error about sizes and does not end the process.
  void empty(const at::Tensor& param);
  /// Moves all parked storages back, into new memory of their devices.
  void restore(bool non_blocking);

  /// Returns whether the tensor's bytes are on the host.
  bool holds(const at::Tensor& tensor) const;
  bool empty() const { return parked_.empty(); }
  int64_t bytes() const;

 private:
  struct Parked {
    c10::Storage storage;
    at::Tensor bytes;  // (n) in host memory
  };
  struct Emptied {
    at::Tensor param, values;  // `values` has the parameter's own sizes and storage
  };
  std::vector<Parked> parked_;
  std::vector<Emptied> emptied_;
};

}  // namespace deepspeed::zero
