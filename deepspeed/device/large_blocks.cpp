#include "deepspeed/device/large_blocks.h"

#include <malloc.h>

namespace deepspeed::device {
namespace {

void set_thresholds(int mapped_bytes) {
  mallopt(M_MMAP_THRESHOLD, mapped_bytes);
  mallopt(M_TRIM_THRESHOLD, 2 * mapped_bytes);
}

}  // namespace

LargeBlocksInPages::LargeBlocksInPages() { set_thresholds(256 << 10); }
LargeBlocksInPages::~LargeBlocksInPages() { set_thresholds(32 << 20); }

}  // namespace deepspeed::device
