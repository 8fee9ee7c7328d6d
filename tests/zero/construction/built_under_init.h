// Builds models under zero::Init, for its tests.
#pragma once

#include <memory>
#include <string>
#include <utility>

#include "deepspeed/base/json.h"
#include "deepspeed/zero/init.h"

namespace deepspeed::testing {

template <class Model, class... Args>
std::shared_ptr<Model> built_under_init(zero::InitArguments arguments, const Args&... args) {
  const zero::Init init(std::move(arguments));
  return std::make_shared<Model>(args...);
}

/// Returns a config that puts every matrix with sides of 32 elements on the disk.
inline Json on_disk(const std::string& folder, const std::string& device = "nvme") {
  return {{"train_micro_batch_size_per_gpu", 1},
          {"aio", {{"block_size", 4096}}},
          {"log_level", "error"},
          {"zero_optimization",
           {{"stage", 3},
            {"offload_param",
             {{"device", device},
              {"nvme_path", folder},
              {"max_in_cpu", 0},
              {"buffer_count", 2},
              {"buffer_size", 100'000}}}}}};
}

}  // namespace deepspeed::testing
