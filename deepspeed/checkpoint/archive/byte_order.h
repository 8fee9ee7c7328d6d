// torch.save notes the byte order in which it wrote its records.
#pragma once

#include "deepspeed/checkpoint/archive/zip_reader.h"

namespace deepspeed::checkpoint {

/// Throws CheckpointError where the archive's byte order is not this machine's.
void check_byte_order(const ZipReader& zip);

}  // namespace deepspeed::checkpoint
