#include "tests/simulated_cuda/device/generator.h"

#include <map>
#include <mutex>
#include <utility>

#include <ATen/CPUGeneratorImpl.h>
#include <c10/core/GeneratorImpl.h>

#include "tests/simulated_cuda/device/streams.h"

namespace deepspeed::simulated {
namespace {

class DeviceGenerator final : public c10::GeneratorImpl {
 public:
  DeviceGenerator(c10::Device device, at::Generator numbers)
      : c10::GeneratorImpl(device, c10::DispatchKeySet(c10::DispatchKey::CUDA)),
        numbers_(std::move(numbers)) {}
  void set_current_seed(uint64_t seed) override { numbers_.set_current_seed(seed); }
  void set_offset(uint64_t) override {}
  uint64_t get_offset() const override { return 0; }
  uint64_t current_seed() const override { return numbers_.current_seed(); }
  uint64_t seed() override { return numbers_.seed(); }
  void set_state(const c10::TensorImpl& state) override {
    numbers_.unsafeGetGeneratorImpl()->set_state(state);
  }
  c10::intrusive_ptr<c10::TensorImpl> get_state() const override {
    return numbers_.unsafeGetGeneratorImpl()->get_state();
  }
  at::Generator& numbers() { return numbers_; }

 private:
  DeviceGenerator* clone_impl() const override { return new DeviceGenerator(device_, numbers_.clone()); }
  at::Generator numbers_;
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
  return static_cast<DeviceGenerator*>(generator.unsafeGetGeneratorImpl())->numbers();
}

}  // namespace deepspeed::simulated
