// Controls how malloc allocates large blocks.
#pragma once

namespace deepspeed::device {

/// Makes malloc map blocks of 256 KiB or more separately, process-wide, while it exists. In the heap a freed
/// large tensor leaves a gap that glibc before 2.38 does not reuse for an aligned block of the same size.
/// Short-lived large tensors between long-lived small ones would then take new memory each time. After this
/// object's end, blocks up to 32 MiB come from the heap again, as glibc arranges by itself once such a block
/// was freed. Each separate mapping costs time.
class LargeBlocksInPages {
 public:
  LargeBlocksInPages();
  ~LargeBlocksInPages();
  LargeBlocksInPages(const LargeBlocksInPages&) = delete;
  LargeBlocksInPages& operator=(const LargeBlocksInPages&) = delete;
};

}  // namespace deepspeed::device
