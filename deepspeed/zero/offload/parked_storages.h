// Bytes of tensors that are moved to the host's memory for a while, and the device's memory freed: the
// tensors, and all views of them, keep their identity and sizes.
#pragma once

#include <vector>

#include <ATen/core/Tensor.h>
#include <c10/core/Storage.h>

namespace deepspeed::zero {

/// Holds the parked bytes. Until restore(), reading or writing a parked tensor ends the process: the owner
/// keeps others away.
class ParkedStorages {
 public:
  /// Parks the whole storage of `tensor`, with whatever else lies in it; a second call for it does nothing.
  /// pin_memory: into page-locked memory. non_blocking: the current stream makes the copy.
  void park(const at::Tensor& tensor, bool pin_memory, bool non_blocking);
  /// Gives a parked parameter that the client can reach no elements until restore(): using it is then an
  /// error of sizes that ends no process.
  void empty(const at::Tensor& param);
  /// Moves all parked storages back, into fresh memory of their devices.
  void restore(bool non_blocking);

  /// True if the tensor's bytes are with the host.
  bool holds(const at::Tensor& tensor) const;
  bool empty() const { return parked_.empty(); }
  int64_t bytes() const;

 private:
  struct Parked {
    c10::Storage storage;
    at::Tensor bytes;  // (n) in the host's memory
  };
  struct Emptied {
    at::Tensor param, values;  // `values` has the parameter's own sizes, over its own storage
  };
  std::vector<Parked> parked_;
  std::vector<Emptied> emptied_;
};

}  // namespace deepspeed::zero
