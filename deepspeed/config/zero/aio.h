// The section aio.
#pragma once

#include <cstdint>

#include "deepspeed/config/table/table.h"

namespace deepspeed::config {

/// Options of asynchronous files, which offloading to NVMe uses.
struct AioConfig {
  int64_t block_size = 1048576;
  int64_t queue_depth = 8;
  int64_t intra_op_parallelism = 1;
  bool single_submit = false;
  bool overlap_events = true;
  bool use_gds = false;
};

const Table<AioConfig>& aio_table();

}  // namespace deepspeed::config
