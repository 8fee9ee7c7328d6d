// allocate() takes the smallest free block with memory that fits. Otherwise it gives pages to free addresses,
// moved from the oldest blocks if possible. free() joins a block with its neighbours, and empties the oldest
// ones beyond the pool's limit.
#include "deepspeed/device/host_pool/block_pool.h"

#include <algorithm>
#include <utility>
#include <vector>

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

namespace deepspeed::device {
namespace {

constexpr size_t kGranule = size_t{64} << 10;
// The system records each moved page as a separate range, at most 65,530 per process. Larger pools move none.
constexpr size_t kMostWithMovedPages = size_t{32} << 30;

size_t round_up(size_t bytes, size_t unit) { return (bytes + unit - 1) / unit * unit; }
size_t round_down(size_t bytes, size_t unit) { return bytes / unit * unit; }

}  // namespace

BlockPool::BlockPool(size_t addresses, size_t most_kept)
    : addresses_(reserve_addresses(addresses, kHugePage)),
      most_kept_(most_kept),
      process_(::getpid()),
      stock_(addresses_.bytes),
      page_table_(::open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC)) {
  if (addresses_.bytes > 0) free_[0] = {addresses_.bytes, false, 0};
}

BlockPool::~BlockPool() {
  if (page_table_ >= 0) ::close(page_table_);
  release_addresses(addresses_);
}

bool BlockPool::has_memory(size_t page) const {
  const size_t bytes_of_page = page_bytes();
  constexpr uint64_t kPresentOrSwapped = uint64_t{3} << 62;
  std::vector<uint64_t> entries(kHugePage / bytes_of_page);
  const size_t bytes = entries.size() * sizeof(uint64_t);
  const auto place = reinterpret_cast<uintptr_t>(addresses_.data + page) / bytes_of_page * sizeof(uint64_t);
  if (::pread(page_table_, entries.data(), bytes, static_cast<off_t>(place)) != static_cast<ssize_t>(bytes))
    return true;
  return std::ranges::any_of(entries, [](uint64_t entry) { return (entry & kPresentOrSwapped) != 0; });
}

bool BlockPool::moves_pages() const { return used_bytes_ + kept_bytes_ <= kMostWithMovedPages; }

void BlockPool::take_memory_of(size_t offset, size_t bytes) {
  char* const data = addresses_.data + offset;
  if (moves_pages()) return stock_.put(data, bytes);
  ::madvise(data, bytes, MADV_DONTNEED);
}

void BlockPool::stock_up(size_t bytes) {
  while (moves_pages() && stock_.bytes() < bytes && empty_oldest(bytes - stock_.bytes())) {
  }
}

bool BlockPool::is_usable() const { return addresses_.bytes > 0 && process_ == ::getpid(); }

bool BlockPool::add_pages(size_t offset, size_t bytes) {
  char* const data = addresses_.data + offset;
  const size_t moved = stock_.take(data, bytes);
  if (moved == bytes) return true;
  if (::mprotect(data + moved, bytes - moved, PROT_READ | PROT_WRITE) != 0) {
    make_mere_addresses(data, moved);
    return false;
  }
  ::madvise(data + moved, bytes - moved, MADV_HUGEPAGE);  // without huge pages the system uses small ones
  return true;
}

void* BlockPool::allocate(size_t bytes) {
  if (!is_usable()) return nullptr;
  const size_t wanted = round_up(std::max<size_t>(bytes, 1), kGranule);
  const std::lock_guard lock(mutex_);
  auto found = find_smallest(free_, wanted, true);
  if (found == free_.end()) {
    const size_t whole = round_up(wanted, kHugePage);
    stock_up(whole);
    const auto addresses = find_smallest(free_, whole, false);
    if (addresses == free_.end() || !add_pages(addresses->first, whole)) return nullptr;
    const auto [offset, block] = *addresses;
    free_.erase(addresses);
    if (block.bytes > whole) free_[offset + whole] = {block.bytes - whole, false, 0};
    kept_bytes_ += whole;
    // Free space before it stays a separate block, so that this one starts at a huge page.
    found = free_.insert_or_assign(offset, FreeBlock{whole, true, num_freed_}).first;
  }
  const auto [offset, block] = *found;
  free_.erase(found);
  kept_bytes_ -= wanted;
  if (block.bytes > wanted) add_joined(free_, offset + wanted, {block.bytes - wanted, true, block.freed});
  used_[offset] = wanted;
  used_bytes_ += wanted;
  return addresses_.data + offset;
}

bool BlockPool::free(void* block) {
  if (!contains(block)) return false;
  if (!is_usable()) return true;  // a child's copy of the memory is freed with the child
  const auto offset = static_cast<size_t>(static_cast<char*>(block) - addresses_.data);
  const std::lock_guard lock(mutex_);
  const auto found = used_.find(offset);
  if (found == used_.end()) return false;
  const size_t bytes = found->second;
  used_.erase(found);
  used_bytes_ -= bytes;
  kept_bytes_ += bytes;
  lent_.erase(lent_.lower_bound(offset), lent_.lower_bound(offset + bytes));
  add_joined(free_, offset, {bytes, true, ++num_freed_});
  while (kept_bytes_ > most_kept_ && empty_oldest(kept_bytes_ - most_kept_)) {
  }
  trim();
  return true;
}

bool BlockPool::empty_oldest(size_t wanted) {
  const auto whole_pages = [](size_t offset, const FreeBlock& block) {
    const size_t begin = round_up(offset, kHugePage);
    return std::pair(begin, std::max(begin, round_down(offset + block.bytes, kHugePage)));
  };
  auto oldest = free_.end();
  for (auto it = free_.begin(); it != free_.end(); ++it) {
    const auto [begin, end] = whole_pages(it->first, it->second);
    if (!it->second.has_pages || begin == end) continue;
    if (oldest == free_.end() || it->second.freed < oldest->second.freed) oldest = it;
  }
  if (oldest == free_.end()) return false;
  const auto [offset, block] = *oldest;
  const auto [begin, last] = whole_pages(offset, block);
  const size_t end = std::min(last, begin + round_up(wanted, kHugePage));
  take_memory_of(begin, end - begin);
  make_mere_addresses(addresses_.data + begin, end - begin);
  kept_bytes_ -= end - begin;
  free_.erase(oldest);
  if (begin > offset) free_[offset] = {begin - offset, true, block.freed};
  if (offset + block.bytes > end) free_[end] = {offset + block.bytes - end, true, block.freed};
  add_joined(free_, begin, {end - begin, false, 0});
  return true;
}

void BlockPool::trim() {
  const size_t most = most_kept_ + lent_.size() * kHugePage;
  stock_.trim(most - std::min(most, kept_bytes_));
}

void BlockPool::lend(void* data, size_t bytes) {
  if (!contains(data) || !is_usable()) return;
  const auto offset = static_cast<size_t>(static_cast<char*>(data) - addresses_.data);
  const std::lock_guard lock(mutex_);
  for (size_t page = round_up(offset, kHugePage); page + kHugePage <= offset + bytes; page += kHugePage) {
    if (lent_.insert(page).second || has_memory(page)) take_memory_of(page, kHugePage);
  }
  trim();
}

void BlockPool::fetch(void* data, size_t bytes) {
  if (!contains(data) || !is_usable()) return;
  const auto offset = static_cast<size_t>(static_cast<char*>(data) - addresses_.data);
  const std::lock_guard lock(mutex_);
  auto page = lent_.lower_bound(round_down(offset, kHugePage));
  while (page != lent_.end() && *page < offset + bytes) {
    if (!has_memory(*page)) {
      stock_up(kHugePage);
      stock_.take(addresses_.data + *page, kHugePage);
    }
    page = lent_.erase(page);
  }
  trim();
}

bool BlockPool::contains(const void* data) const {
  const auto* const at = static_cast<const char*>(data);
  return addresses_.bytes > 0 && at >= addresses_.data && at < addresses_.data + addresses_.bytes;
}

size_t BlockPool::used_bytes() const {
  const std::lock_guard lock(mutex_);
  return used_bytes_;
}

size_t BlockPool::kept_bytes() const {
  const std::lock_guard lock(mutex_);
  return kept_bytes_ + stock_.bytes();
}

size_t BlockPool::lent_bytes() const {
  const std::lock_guard lock(mutex_);
  return lent_.size() * kHugePage;
}

}  // namespace deepspeed::device
