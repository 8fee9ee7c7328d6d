// A launch on the simulated device of a kernel that takes raw pointers.
#pragma once

#include <cstddef>
#include <vector>

#include "deepspeed/kernels/arguments/element_type.h"

#include "tests/simulated_cuda/device/graphs.h"
#include "tests/simulated_cuda/device/memory.h"
#include "tests/simulated_cuda/device/streams.h"

namespace deepspeed::kernels {

inline size_t bytes_of(ElementType type) {
  if (type == ElementType::kFloat64) return 8;
  return type == ElementType::kFloat32 ? 4 : 2;
}

/// Collects what a kernel reads and writes; a device address becomes the place of its bytes.
class PointerLaunch {
 public:
  explicit PointerLaunch(const char* name) : name_(name) {}
  template <typename T>
  void uses(T*& data, size_t bytes, bool writes) {
    if (data == nullptr) return;
    uses_.push_back({data, bytes, writes});
    data = reinterpret_cast<T*>(simulated::bytes_at(data));
  }
  template <typename T>
  void reads(T*& data, size_t bytes) {
    uses(data, bytes, false);
  }
  template <typename T>
  void writes(T*& data, size_t bytes) {
    uses(data, bytes, true);
  }
  /// Does the work, unless the launch races.
  template <class Work>
  void run(int device, const Work& work) const {
    if (!simulated::launch(name_, simulated::current_stream(device), uses_)) return;
    work();
    simulated::repeat_in_graph(work);
  }

 private:
  const char* name_;
  std::vector<simulated::Use> uses_;
};

}  // namespace deepspeed::kernels
