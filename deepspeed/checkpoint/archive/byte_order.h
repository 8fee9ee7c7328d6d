// The byte order in which torch.save wrote its records.
#pragma once

#include "deepspeed/checkpoint/archive/zip_reader.h"

namespace deepspeed::checkpoint {

/// Throws CheckpointError where it is not this machine's.
void check_byte_order(const ZipReader& zip);

}  // namespace deepspeed::checkpoint
