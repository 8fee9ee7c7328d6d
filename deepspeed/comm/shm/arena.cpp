#include "deepspeed/comm/shm/arena.h"

#include <algorithm>
#include <atomic>

#include <unistd.h>

#include "deepspeed/base/error.h"

namespace deepspeed::comm::shm {
namespace {

constexpr size_t kArenaPage = 4096;
constexpr size_t kLeastArena = size_t{64} << 20;
// This much memory of free blocks is kept; beyond it pages go back to the system.
constexpr size_t kMostKept = size_t{256} << 20;

std::atomic<pid_t> shared_in_process{0};

size_t machine_memory() {
  return static_cast<size_t>(::sysconf(_SC_PHYS_PAGES)) * static_cast<size_t>(::sysconf(_SC_PAGESIZE));
}

}  // namespace

Arena::Arena(size_t most_bytes) : process_(::getpid()) {
  size_t bytes = std::max(most_bytes / kArenaPage * kArenaPage, kArenaPage);
  while (true) {
    try {
      memory_ = make_memory(bytes);
      mapping_ = map_memory(memory_, bytes, MappingUse::kOwn);
      break;
    } catch (const CommError&) {
      bytes = bytes / 2 / kArenaPage * kArenaPage;
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

Arena::Blocks::iterator Arena::find_free(size_t bytes, bool has_pages) {
  auto best = free_.end();
  for (auto it = free_.begin(); it != free_.end(); ++it) {
    const Block& block = it->second;
    if (block.has_pages != has_pages || block.bytes < bytes) continue;
    if (best == free_.end() || block.bytes < best->second.bytes) best = it;
  }
  return best;
}

void Arena::add_free(size_t offset, Block block) {
  const auto next = free_.lower_bound(offset);
  if (next != free_.end() && next->first == offset + block.bytes &&
      next->second.has_pages == block.has_pages) {
    block.bytes += next->second.bytes;
    free_.erase(next);
  }
  const auto after = free_.lower_bound(offset);
  if (after != free_.begin()) {
    const auto before = std::prev(after);
    if (before->first + before->second.bytes == offset && before->second.has_pages == block.has_pages) {
      before->second.bytes += block.bytes;
      return;
    }
  }
  free_[offset] = block;
}

void* Arena::allocate(size_t bytes) {
  if (process_ != ::getpid()) return nullptr;
  const size_t wanted = (std::max<size_t>(bytes, 1) + kArenaPage - 1) / kArenaPage * kArenaPage;
  const std::lock_guard lock(mutex_);
  auto found = find_free(wanted, true);
  if (found == free_.end()) found = find_free(wanted, false);
  if (found == free_.end()) return nullptr;
  const auto [offset, block] = *found;
  if (!block.has_pages && !add_pages(memory_, offset, wanted)) {
    drop_pages(memory_, offset, wanted);  // those that there were
    return nullptr;
  }
  free_.erase(found);
  if (block.bytes > wanted) free_[offset + wanted] = {block.bytes - wanted, block.has_pages};
  if (block.has_pages) kept_bytes_ -= wanted;
  used_[offset] = {wanted, true};
  return mapping_->data() + offset;
}

void Arena::free(void* block) {
  if (block == nullptr || process_ != ::getpid()) return;
  const auto offset = static_cast<size_t>(static_cast<char*>(block) - mapping_->data());
  const std::lock_guard lock(mutex_);
  const auto found = used_.find(offset);
  if (found == used_.end()) return;
  const size_t bytes = found->second.bytes;
  used_.erase(found);
  const bool is_kept = kept_bytes_ + bytes <= kMostKept;
  if (is_kept) {
    kept_bytes_ += bytes;
  } else {
    drop_pages(memory_, offset, bytes);
  }
  add_free(offset, {bytes, is_kept});
}

size_t Arena::used_bytes() const {
  const std::lock_guard lock(mutex_);
  size_t bytes = 0;
  for (const auto& [offset, block] : used_) bytes += block.bytes;
  return bytes;
}

std::optional<size_t> Arena::offset_of(const void* data, size_t bytes) const {
  const auto* const at = static_cast<const char*>(data);
  if (at < mapping_->data() || at + bytes > mapping_->data() + mapping_->bytes()) return std::nullopt;
  return static_cast<size_t>(at - mapping_->data());
}

}  // namespace deepspeed::comm::shm
