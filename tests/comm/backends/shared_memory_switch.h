// Switches shared memory between ranks on or off for tests.
#pragma once

#include <cstdlib>
#include <optional>
#include <string>

#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

#include "deepspeed/base/env.h"
#include "deepspeed/comm/group/process_group.h"

namespace deepspeed::comm {

/// Sets the variable for ranks that are forked during its lifetime.
class SharedMemorySwitch {
 public:
  explicit SharedMemorySwitch(bool is_on) : before_(env::get(kName)) {
    ::setenv(kName, is_on ? "1" : "0", 1);
  }
  ~SharedMemorySwitch() {
    if (before_) {
      ::setenv(kName, before_->c_str(), 1);
    } else {
      ::unsetenv(kName);
    }
  }
  SharedMemorySwitch(const SharedMemorySwitch&) = delete;
  SharedMemorySwitch& operator=(const SharedMemorySwitch&) = delete;

 private:
  static constexpr const char* kName = "DEEPSPEED_SHARED_MEMORY";
  std::optional<std::string> before_;
};

inline std::string cpu_backend_name(const ProcessGroup& group) {
  return group.c10d_group()->getBackend(at::kCPU)->getBackendName();
}

}  // namespace deepspeed::comm
