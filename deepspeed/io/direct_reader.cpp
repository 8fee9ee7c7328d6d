#include "deepspeed/io/direct_reader.h"

#include <algorithm>
#include <cerrno>
#include <cstring>

#include <unistd.h>

namespace deepspeed::io {
namespace {

constexpr size_t kReadBlockBytes = size_t{1} << 20;
constexpr size_t kReadDepth = 12;

}  // namespace

size_t DirectReader::buffer_bytes() { return kReadDepth * kReadBlockBytes; }

DirectReader::DirectReader(int file, std::unique_ptr<TransferQueue> queue)
    : file_(file),
      queue_(queue ? std::move(queue) : make_transfer_queue(kReadDepth)),
      buffer_(buffer_bytes()),
      slots_(kReadDepth) {}

DirectReader::~DirectReader() {
  queue_.reset();  // the kernel writes into the buffer until then
  ::close(file_);
}

char* DirectReader::data_of(uint64_t block) const {
  return buffer_.data() + block % slots_.size() * kReadBlockBytes;
}

void DirectReader::start(uint64_t block) {
  slot_of(block) = {.is_reading = true};
  queue_->start({Transfer::Kind::kRead, file_, data_of(block), kReadBlockBytes, block * kReadBlockBytes,
                 block % slots_.size()});
}

void DirectReader::wait_for(const Slot& slot) {
  while (slot.is_reading) {
    const Completion completion = queue_->wait();
    slots_[completion.id] = {false, completion.bytes, completion.error};
  }
}

const DirectReader::Slot& DirectReader::load(uint64_t block, uint64_t last_wanted) {
  // A jump discards blocks read ahead. Their transfers still write into the buffer and must end first.
  if (block < begin_ || block > end_) {
    for (; begin_ < end_; ++begin_) wait_for(slot_of(begin_));
    begin_ = end_ = block;
    ahead_ = 0;
  } else if (block > begin_) {  // forward: reading ahead more is worthwhile
    // Reading ahead doubles with each block, so that scattered reads cost little.
    ahead_ = std::min<uint64_t>(2 * ahead_ + 1, kReadDepth - 1);
    for (; begin_ < block; ++begin_) wait_for(slot_of(begin_));
  }
  const uint64_t wanted = std::max(block + ahead_, std::min(last_wanted, block + kReadDepth - 1));
  for (; end_ <= wanted; ++end_) {
    // Nothing follows a block that is not full.
    if (end_ > begin_ && !slot_of(end_ - 1).is_reading && slot_of(end_ - 1).bytes < kReadBlockBytes) break;
    start(end_);
  }
  wait_for(slot_of(block));
  return slot_of(block);
}

int DirectReader::read(uint64_t offset, void* destination, size_t size) {
  auto* target = static_cast<char*>(destination);
  if (size == 0) return 0;
  const uint64_t last = (offset + size - 1) / kReadBlockBytes;
  while (size > 0) {
    const uint64_t block = offset / kReadBlockBytes, within = offset % kReadBlockBytes;
    const Slot& slot = load(block, last);
    if (slot.error != 0 || slot.bytes <= within) {
      const int error = slot.error != 0 ? slot.error : ENODATA;
      for (; begin_ < end_; ++begin_) wait_for(slot_of(begin_));  // a later call tries again
      return error;
    }
    const size_t count = std::min<size_t>(size, slot.bytes - within);
    std::memcpy(target, data_of(block) + within, count);
    target += count;
    offset += count;
    size -= count;
  }
  return 0;
}

}  // namespace deepspeed::io
