// Measures how fast a disk reads and writes with a tuning of AsyncIo.
#pragma once

#include <cstdint>
#include <filesystem>

#include "deepspeed/base/export.h"
#include "deepspeed/io/async_io.h"

namespace deepspeed::io {

/// Holds a disk's rates in bytes per second.
struct DiskRate {
  double read = 0.0;
  double write = 0.0;
};

struct DiskRateOptions {
  uint64_t bytes = uint64_t{256} << 20;  // of the file, rounded up to whole blocks
  int loops = 3;                         // the fastest one counts
  bool validate = false;                 // compare the bytes read with those written
};

/// Writes a file in `folder` past the page cache, reads it back, and removes it. Throws IoError, naming the
/// folder, if it cannot be written, is full, lacks O_DIRECT, or returned different bytes. Throws UsageError
/// for options of 0.
DEEPSPEED_API DiskRate measure_disk(const std::filesystem::path& folder, const DiskRateOptions& options,
                                    const AsyncIoOptions& tuning);

}  // namespace deepspeed::io
