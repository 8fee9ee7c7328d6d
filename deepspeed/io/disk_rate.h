// This measures how fast a disk reads and writes with a tuning of AsyncIo.
#pragma once

#include <cstdint>
#include <filesystem>

#include "deepspeed/base/export.h"
#include "deepspeed/io/async_io.h"

namespace deepspeed::io {

/// Says how many bytes a second a disk moves.
struct DiskRate {
  double read = 0.0;
  double write = 0.0;
};

struct DiskRateOptions {
  uint64_t bytes = uint64_t{256} << 20;  // of the file, rounded up to whole blocks
  int loops = 3;                         // of which the fastest counts
  bool validate = false;                 // compare what is read with what was written
};

/// Writes a file in `folder` past the page cache, reads it again, and removes it. Throws IoError, naming the
/// folder: where it cannot be written, is full, has no O_DIRECT, or gave back other bytes; UsageError for
/// options of 0.
DEEPSPEED_API DiskRate measure_disk(const std::filesystem::path& folder, const DiskRateOptions& options,
                                    const AsyncIoOptions& tuning);

}  // namespace deepspeed::io
