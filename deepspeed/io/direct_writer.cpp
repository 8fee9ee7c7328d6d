#include "deepspeed/io/direct_writer.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include <fcntl.h>
#include <unistd.h>

namespace deepspeed::io {
namespace {

// Disks reach their full rate with a few requests of this size; larger ones only need memory.
constexpr size_t kBlockBytes = size_t{2} << 20;

}  // namespace

DirectWriter::DirectWriter(int file, const WriterOptions& options, std::unique_ptr<TransferQueue> queue)
    : file_(file), options_(options), queue_(std::move(queue)) {}

DirectWriter::~DirectWriter() {
  queue_.reset();  // the kernel reads from the buffer until then
  if (file_ >= 0) ::close(file_);
}

int DirectWriter::keep(int error) {
  if (error_ == 0) error_ = error;
  return error_;
}

int DirectWriter::reserve(uint64_t bytes) {
  reserved_ = align_up(bytes);
  // With the file's length set in advance, its blocks can be written at once. finish() cuts off the excess.
  if (bytes == 0 || ::fallocate(file_, 0, 0, off_t(reserved_)) == 0) return 0;
  return errno == ENOSPC || errno == EDQUOT ? keep(errno)
                                            : 0;  // otherwise the file system does not support it
}

void DirectWriter::take_memory() {
  const size_t wanted = std::max(options_.buffer_bytes, 2 * kDirectAlignment);
  const size_t total = align_up(reserved_ > 0 ? std::min<uint64_t>(wanted, reserved_ + kBlockBytes) : wanted);
  block_bytes_ = std::min(kBlockBytes, total / 2 / kDirectAlignment * kDirectAlignment);
  const size_t num_blocks = total / block_bytes_;
  buffer_ = AlignedBuffer(num_blocks * block_bytes_);
  is_busy_.assign(num_blocks, false);
  if (!queue_) queue_ = make_transfer_queue(num_blocks);
}

int DirectWriter::wait_for_one() {
  const Completion completion = queue_->wait();
  is_busy_[completion.id] = false;
  // A write that ends early without an error means that the disk is full.
  if (completion.error != 0 || completion.bytes == 0)
    return keep(completion.error != 0 ? completion.error : ENOSPC);
  return error_;
}

int DirectWriter::wait_for_all() {
  while (queue_ && queue_->num_under_way() > 0) wait_for_one();
  return error_;
}

int DirectWriter::send_block() {
  const size_t bytes = align_up(filled_);
  std::memset(block(current_) + filled_, 0, bytes - filled_);  // only affects the file's last block
  queue_->start({Transfer::Kind::kWrite, file_, block(current_), bytes, sent_, current_});
  is_busy_[current_] = true;
  sent_ += filled_;
  filled_ = 0;
  current_ = (current_ + 1) % is_busy_.size();
  if (!options_.double_buffered && current_ == 0) return wait_for_all();
  while (is_busy_[current_]) wait_for_one();
  return error_;
}

int DirectWriter::write(const void* data, size_t size) {
  if (error_ != 0) return error_;
  if (block_bytes_ == 0) take_memory();
  const auto* bytes = static_cast<const char*>(data);
  while (size > 0) {
    const size_t count = std::min(size, block_bytes_ - filled_);
    std::memcpy(block(current_) + filled_, bytes, count);
    filled_ += count;
    bytes += count;
    size -= count;
    if (filled_ == block_bytes_ && send_block() != 0) return error_;
  }
  return 0;
}

int DirectWriter::finish() {
  if (filled_ > 0) send_block();
  if (wait_for_all() != 0) return error_;
  if (::ftruncate(file_, off_t(sent_)) != 0 || ::fsync(file_) != 0) return keep(errno);
  return ::close(std::exchange(file_, -1)) == 0 ? 0 : keep(errno);
}

}  // namespace deepspeed::io
