// Ranges of addresses without memory.
#pragma once

#include <cstddef>

namespace deepspeed::device {

/// Returns the size of the system's pages: 4 KiB on x86, up to 64 KiB on ARM.
size_t page_bytes();

/// Size and alignment of huge pages, which need fewer address look-ups than ordinary ones.
inline constexpr size_t kHugePage = size_t{2} << 20;

/// Is a reserved range of addresses that starts at a multiple of `alignment`.
struct Addresses {
  char* data = nullptr;
  size_t bytes = 0;
};

/// Reserves addresses, or fewer if the system has too few, possibly none. bytes is rounded up to a multiple
/// of alignment. Call release_addresses() at the end.
Addresses reserve_addresses(size_t bytes, size_t alignment);
void release_addresses(const Addresses& addresses);
/// Turns a part of a range back into bare addresses, whatever it was. Returns false if the system refuses.
bool make_mere_addresses(char* data, size_t bytes);

}  // namespace deepspeed::device
