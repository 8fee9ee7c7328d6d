// Where malloc takes large blocks from.
#pragma once

namespace deepspeed::device {

/// While an object lives, malloc gives blocks of 256 KiB and more pages of their own, in the whole process.
/// In the heap a large tensor that is freed leaves a gap that glibc before 2.38 does not use for an aligned
/// block of the same size, so that large tensors that come and go between small ones that stay take new
/// memory each. Afterwards blocks up to 32 MiB come from the heap again, as glibc arranges it by itself once
/// such a block was freed: pages of their own cost time at each allocation.
class LargeBlocksInPages {
 public:
  LargeBlocksInPages();
  ~LargeBlocksInPages();
  LargeBlocksInPages(const LargeBlocksInPages&) = delete;
  LargeBlocksInPages& operator=(const LargeBlocksInPages&) = delete;
};

}  // namespace deepspeed::device
