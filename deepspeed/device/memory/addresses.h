// Ranges of addresses that are no memory yet.
#pragma once

#include <cstddef>

namespace deepspeed::device {

/// Returns the size of the system's pages: 4 KiB on x86, up to 64 KiB on ARM.
size_t page_bytes();

/// Size and alignment of the pages that need fewer look-ups than the usual ones.
inline constexpr size_t kHugePage = size_t{2} << 20;

/// A range of addresses that nothing else gets, from a multiple of `alignment` on.
struct Addresses {
  char* data = nullptr;
  size_t bytes = 0;
};

/// Reserves addresses, fewer where the system has not as many, perhaps none; bytes is rounded up to whole
/// alignments. Call release_addresses() at the end.
Addresses reserve_addresses(size_t bytes, size_t alignment);
void release_addresses(const Addresses& addresses);
/// Makes mere addresses of a part again, whatever it was. Returns false where the system refuses.
bool make_mere_addresses(char* data, size_t bytes);

}  // namespace deepspeed::device
