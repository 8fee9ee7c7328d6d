#include "deepspeed/comm/shm/arena.h"

#include <algorithm>
#include <atomic>

#include <unistd.h>

#include "deepspeed/base/error.h"

namespace deepspeed::comm::shm {
namespace {

constexpr size_t kLeastArena = size_t{64} << 20;
// This much memory of free blocks is kept; beyond it pages go back to the system.
constexpr size_t kMostKept = size_t{256} << 20;

std::atomic<pid_t> shared_in_process{0};

size_t round_up(size_t bytes, size_t unit) { return (bytes + unit - 1) / unit * unit; }

size_t machine_memory() { return static_cast<size_t>(::sysconf(_SC_PHYS_PAGES)) * device::page_bytes(); }

}  // namespace

Arena::Arena(size_t most_bytes, size_t page) : page_(page), process_(::getpid()) {
  size_t bytes = std::max(most_bytes / page_ * page_, page_);
  while (true) {
    try {
      memory_ = make_memory(bytes);
      mapping_ = map_memory(memory_, bytes, MappingUse::kOwn);
      break;
    } catch (const CommError&) {
      bytes = bytes / 2 / page_ * page_;
      if (bytes < kLeastArena) throw;
    }
  }
  free_[0] = {bytes, false};
}

std::shared_ptr<Arena> Arena::of_process() {
  static auto& mutex = *new std::mutex;
  static auto& made = *new std::shared_ptr<Arena>;
  const std::lock_guard lock(mutex);
  if (made && made->process_ == ::getpid()) return made;
  if (made) new std::shared_ptr<Arena>(made);  // the parent's stays: tensors of it may be read here
  made = std::make_shared<Arena>(machine_memory());
  return made;
}

bool Arena::is_shared() { return shared_in_process.load() == ::getpid(); }
void Arena::set_shared() { shared_in_process.store(::getpid()); }

device::FreeBlocks::iterator Arena::add_block(size_t bytes) {
  auto found = free_.end();
  if (bytes >= device::kHugePage)
    found = device::find_smallest(free_, bytes + device::kHugePage - page_, false);
  const bool is_aligned = found != free_.end();
  if (!is_aligned) found = device::find_smallest(free_, bytes, false);
  if (found == free_.end()) return found;
  const auto [offset, block] = *found;
  const size_t begin = is_aligned ? round_up(offset, device::kHugePage) : offset;
  add_huge_pages(memory_, *mapping_, begin, bytes);
  if (!add_pages(memory_, begin, bytes)) {
    drop_pages(memory_, begin, bytes);  // those that there were
    return free_.end();
  }
  free_.erase(found);
  if (begin > offset) free_[offset] = {begin - offset, false};
  const size_t after = offset + block.bytes - begin - bytes;
  if (after > 0) free_[begin + bytes] = {after, false};
  kept_bytes_ += bytes;
  return free_.insert_or_assign(begin, device::FreeBlock{bytes, true}).first;
}

void* Arena::allocate(size_t bytes) {
  if (process_ != ::getpid()) return nullptr;
  const size_t wanted = round_up(std::max<size_t>(bytes, 1), page_);
  const std::lock_guard lock(mutex_);
  auto found = device::find_smallest(free_, wanted, true);
  if (found == free_.end()) found = add_block(wanted);
  if (found == free_.end()) return nullptr;
  const auto [offset, block] = *found;
  free_.erase(found);
  if (block.bytes > wanted) free_[offset + wanted] = {block.bytes - wanted, true};
  kept_bytes_ -= wanted;
  used_[offset] = wanted;
  return mapping_->data() + offset;
}

void Arena::free(void* block) {
  if (block == nullptr || process_ != ::getpid()) return;
  const auto offset = static_cast<size_t>(static_cast<char*>(block) - mapping_->data());
  const std::lock_guard lock(mutex_);
  const auto found = used_.find(offset);
  if (found == used_.end()) return;
  const size_t bytes = found->second;
  used_.erase(found);
  const bool is_kept = kept_bytes_ + bytes <= kMostKept;
  if (is_kept) {
    kept_bytes_ += bytes;
  } else {
    drop_pages(memory_, offset, bytes);
  }
  device::add_joined(free_, offset, {bytes, is_kept});
}

size_t Arena::used_bytes() const {
  const std::lock_guard lock(mutex_);
  size_t bytes = 0;
  for (const auto& [offset, block_bytes] : used_) bytes += block_bytes;
  return bytes;
}

std::optional<size_t> Arena::offset_of(const void* data, size_t bytes) const {
  const auto* const at = static_cast<const char*>(data);
  if (at < mapping_->data() || at + bytes > mapping_->data() + mapping_->bytes()) return std::nullopt;
  return static_cast<size_t>(at - mapping_->data());
}

}  // namespace deepspeed::comm::shm
