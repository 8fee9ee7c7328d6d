#include "tests/simulated_cuda/device/generator.h"

#include <cstring>
#include <map>
#include <mutex>
#include <utility>

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/ops/empty.h>
#include <c10/core/GeneratorImpl.h>

#include "tests/simulated_cuda/device/graphs.h"
#include "tests/simulated_cuda/device/streams.h"

namespace deepspeed::simulated {
namespace {

class DeviceGenerator final : public c10::GeneratorImpl {
 public:
  DeviceGenerator(c10::Device device, at::Generator numbers)
      : c10::GeneratorImpl(device, c10::DispatchKeySet(c10::DispatchKey::CUDA)),
        numbers_(std::move(numbers)) {}
  void set_current_seed(uint64_t seed) override {
    numbers_.set_current_seed(seed);
    offset_ = 0;
  }
  void set_offset(uint64_t offset) override { offset_ = offset; }
  uint64_t get_offset() const override {
    refuse_in_capture("Cannot call CUDAGeneratorImpl::get_offset");
    return offset_;
  }
  uint64_t current_seed() const override { return numbers_.current_seed(); }
  uint64_t seed() override { return numbers_.seed(); }
  // The numbers' state, and behind it the offset that kernels of the library draw by.
  void set_state(const c10::TensorImpl& state) override {
    const auto* const bytes = static_cast<const uint8_t*>(state.data());
    const int64_t numel = state.numel() - static_cast<int64_t>(sizeof(offset_));
    const at::Tensor of_numbers = at::empty({numel}, at::kByte);
    std::memcpy(of_numbers.data_ptr(), bytes, static_cast<size_t>(numel));
    std::memcpy(&offset_, bytes + numel, sizeof(offset_));
    numbers_.set_state(of_numbers);
  }
  c10::intrusive_ptr<c10::TensorImpl> get_state() const override {
    const at::Tensor of_numbers = numbers_.get_state();
    at::Tensor state = at::empty({of_numbers.numel() + static_cast<int64_t>(sizeof(offset_))}, at::kByte);
    auto* const bytes = state.data_ptr<uint8_t>();
    std::memcpy(bytes, of_numbers.const_data_ptr(), static_cast<size_t>(of_numbers.numel()));
    std::memcpy(bytes + of_numbers.numel(), &offset_, sizeof(offset_));
    return state.getIntrusivePtr();
  }
  at::Generator& numbers() { return numbers_; }

 private:
  DeviceGenerator* clone_impl() const override {
    auto* const clone = new DeviceGenerator(device_, numbers_.clone());
    clone->offset_ = offset_;
    return clone;
  }
  at::Generator numbers_;
  uint64_t offset_ = 0;
};

}  // namespace

at::Generator make_generator(int device) {
  return at::make_generator<DeviceGenerator>(device_of(device), at::detail::createCPUGenerator());
}

const at::Generator& default_generator(int device) {
  static std::mutex mutex;
  static std::map<int, at::Generator> made;
  const std::lock_guard lock(mutex);
  const int index = device_of(device).index();
  return made.try_emplace(index, make_generator(index)).first->second;
}

at::Generator& cpu_numbers_of(const at::Generator& generator) {
  refuse_after_left_capture();
  return static_cast<DeviceGenerator*>(generator.unsafeGetGeneratorImpl())->numbers();
}

}  // namespace deepspeed::simulated
