#include "deepspeed/device/host_pool/page_stock.h"

#include <algorithm>

#include <sys/mman.h>

#include "deepspeed/device/memory/addresses.h"

#ifndef MREMAP_DONTUNMAP
#define MREMAP_DONTUNMAP 4
#endif

namespace deepspeed::device {
namespace {

// Moves one huge page at a time: the system does not move a range that it records in several parts. `from`
// stays a range without memory, so that nothing else gets its addresses.
bool move_huge_page(char* from, char* to) {
  return ::mremap(from, kHugePage, kHugePage, MREMAP_MAYMOVE | MREMAP_FIXED | MREMAP_DONTUNMAP, to) == to;
}

// Returns how many bytes were moved, counted from the beginning. In this order neighbours stay neighbours,
// which the system records as one range.
size_t move_huge_pages(char* from, char* to, size_t bytes) {
  size_t moved = 0;
  while (moved < bytes && move_huge_page(from + moved, to + moved)) moved += kHugePage;
  return moved;
}

}  // namespace

PageStock::PageStock(size_t addresses) : addresses_(reserve_addresses(addresses, kHugePage)) {}

PageStock::~PageStock() { release_addresses(addresses_); }

void PageStock::put(char* from, size_t bytes) {
  const size_t room = std::min(bytes, addresses_.bytes - bytes_);
  const size_t moved = move_huge_pages(from, addresses_.data + bytes_, room);
  bytes_ += moved;
  if (moved < bytes) ::madvise(from + moved, bytes - moved, MADV_DONTNEED);
}

size_t PageStock::take(char* to, size_t bytes) {
  const size_t wanted = std::min(bytes, bytes_);
  char* const from = addresses_.data + (bytes_ - wanted);
  const size_t moved = move_huge_pages(from, to, wanted);
  bytes_ -= wanted;
  if (moved < wanted) make_mere_addresses(from + moved, wanted - moved);
  return moved;
}

void PageStock::trim(size_t most) {
  const size_t left = most / kHugePage * kHugePage;
  if (bytes_ <= left || !make_mere_addresses(addresses_.data + left, bytes_ - left)) return;
  bytes_ = left;
}

}  // namespace deepspeed::device
