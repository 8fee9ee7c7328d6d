// The place of a model's shards while their parameters are not used: the device, host memory, or a disk.
// Shards that host memory has room for are not put on the disk.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include <ATen/core/Tensor.h>

#include "deepspeed/tensor/named_tensor.h"
#include "deepspeed/zero/layout/shard_layout.h"
#include "deepspeed/zero/shards/disk_choice.h"
#include "deepspeed/zero/shards/param_home.h"
#include "deepspeed/zero/shards/shard.h"
#include "deepspeed/zero/shards/shard_file.h"

namespace deepspeed::zero {

struct ShardHomeOptions {
  ParamHome place = ParamHome::kDevice;
  bool pin_memory = false;  // page-locked if the model is on a GPU
  // The members below are only for kDisk.
  ShardFileOptions file = {};
  int64_t max_in_host_numel = 0;  // elements of this rank's shards that stay in host memory
  int64_t min_file_bytes = 0;     // shards of fewer bytes stay there as well
};

class ShardHome {
 public:
  /// Creates the file if the place is kDisk. Throws as ShardFile does.
  explicit ShardHome(const ShardHomeOptions& options);

  struct Group {
    // (layout.flat_numel()), zeros; the shards are views of it. Undefined if the place is kDisk.
    at::Tensor flat;
    std::vector<std::shared_ptr<Shard>> shards;  // one per parameter
  };
  /// Allocates memory or disk space for the shards of `params`, without their values.
  Group make_group(const std::vector<NamedTensor>& params, const ShardLayout& layout, at::ScalarType dtype);
  /// Returns the file if the home is kDisk, otherwise null.
  const std::shared_ptr<ShardFile>& file() const { return file_; }

 private:
  bool is_pinned(const at::Device& device) const;
  at::Tensor host_zeros(int64_t numel, at::ScalarType dtype, const at::Device& device) const;
  std::shared_ptr<Shard> make_apart(const NamedTensor& param, int64_t numel, at::ScalarType dtype);

  ShardHomeOptions options_;
  std::shared_ptr<ShardFile> file_;  // only for kDisk
  DiskChoice disk_;                  // only for kDisk
};

}  // namespace deepspeed::zero
