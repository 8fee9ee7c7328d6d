// Reserved ranges of address space, which take no memory yet.
#pragma once

#include <cstddef>

namespace deepspeed::device {

/// Returns the size of the system's pages: 4 KiB on x86, up to 64 KiB on ARM.
size_t page_bytes();

/// Size and alignment of huge pages, which need fewer address look-ups than ordinary ones.
inline constexpr size_t kHugePage = size_t{2} << 20;

/// Describes a reserved range of addresses. `data` is null if there is none.
struct Addresses {
  char* data = nullptr;
  size_t bytes = 0;
};

/// Reserves `bytes` of addresses at a multiple of `alignment`. Reserves fewer, possibly none, if the system
/// has too few. `bytes` is rounded up to a multiple of `alignment`. Call release_addresses() at the end.
Addresses reserve_addresses(size_t bytes, size_t alignment);
void release_addresses(const Addresses& addresses);
/// Frees the memory of [data, data + bytes), a part of a reserved range. The addresses stay reserved. Returns
/// false if the system refuses.
bool make_mere_addresses(char* data, size_t bytes);

}  // namespace deepspeed::device
