// Bytes of tensors that are moved to the host's memory for a while, and the device's memory freed: the
// tensors, and all views of them, keep their identity and sizes.
#pragma once

#include <vector>

#include <ATen/core/Tensor.h>
#include <c10/core/Storage.h>

namespace deepspeed::zero {

/// Until restore(), reading or writing what is parked ends the process: the owner keeps others away.
class ParkedStorages {
 public:
  /// The whole storage of `tensor`, with whatever else lies in it; once, however often it is parked.
  /// pin_memory: into page-locked memory. non_blocking: the copy is done where the current stream is.
  void park(const at::Tensor& tensor, bool pin_memory, bool non_blocking);
  /// All of them, into fresh memory of their devices.
  void restore(bool non_blocking);

  bool empty() const { return parked_.empty(); }
  int64_t bytes() const;

 private:
  struct Parked {
    c10::Storage storage;
    at::Tensor bytes;  // (n) in the host's memory
  };
  std::vector<Parked> parked_;
};

}  // namespace deepspeed::zero
