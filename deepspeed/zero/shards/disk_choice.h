// Chooses which of a rank's shards are on the disk, if the parameters' home is one: a pure rule.
#pragma once

#include <algorithm>
#include <cstdint>

namespace deepspeed::zero {

/// Decides for each shard whether the disk takes it, in the order of the parameters.
class DiskChoice {
 public:
  /// max_in_host_numel: the most elements that stay in host memory. Shards of fewer than `min_file_bytes`
  /// always stay there and do not count.
  DiskChoice(int64_t max_in_host_numel, int64_t min_file_bytes)
      : room_numel_(max_in_host_numel), min_file_bytes_(std::max<int64_t>(min_file_bytes, 1)) {}

  bool takes(int64_t numel, int64_t bytes) {
    if (bytes < min_file_bytes_) return false;
    if (numel > room_numel_) return true;
    room_numel_ -= numel;
    return false;
  }

 private:
  int64_t room_numel_;
  int64_t min_file_bytes_;
};

}  // namespace deepspeed::zero
