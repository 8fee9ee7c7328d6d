// Buffers of equal slots for kept activations, so that long runs do not fragment device memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <tuple>
#include <vector>

#include <ATen/core/Tensor.h>

namespace deepspeed::activation {

/// Holds one buffer for each input position in a region and each size. A buffer has one slot for each region
/// that may wait for backward. Thread-safe.
class SlotBuffers {
 public:
  explicit SlotBuffers(int64_t slots) : slots_(slots) {}

  /// Holds one slot, and releases it on destruction.
  class Slot {
   public:
    Slot(std::shared_ptr<SlotBuffers> owner, std::shared_ptr<std::vector<bool>> used, size_t index,
         at::Tensor tensor);
    ~Slot();
    Slot(const Slot&) = delete;
    Slot& operator=(const Slot&) = delete;
    const at::Tensor& tensor() const { return tensor_; }

   private:
    std::shared_ptr<SlotBuffers> owner_;
    std::shared_ptr<std::vector<bool>> used_;
    size_t index_;
    at::Tensor tensor_;
  };

  /// Copies a flat tensor into a free slot. place: the input's position in its region's list. Throws
  /// UsageError if all slots are in use.
  static std::unique_ptr<Slot> keep(const std::shared_ptr<SlotBuffers>& buffers, size_t place,
                                    const at::Tensor& flat);
  /// Drops all buffers; slots in use stay alive.
  void clear();

 private:
  struct Buffer {
    at::Tensor memory;  // (slots, numel)
    std::shared_ptr<std::vector<bool>> used;
  };
  using Key = std::tuple<size_t, int64_t, at::ScalarType, c10::DeviceType, c10::DeviceIndex>;

  Buffer& buffer_for(size_t place, const at::Tensor& flat);

  const int64_t slots_;
  std::mutex mutex_;
  std::map<Key, Buffer> buffers_;
};

}  // namespace deepspeed::activation
