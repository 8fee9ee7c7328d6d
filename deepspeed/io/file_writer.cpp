// Opens files with O_DIRECT for a DirectWriter, or otherwise for a PlainWriter.
//
// A DirectWriter copies the bytes of write() into aligned blocks (take_memory()). send_block() starts to
// write each full block, and then waits until the next one is free. finish() sends the last block, cuts the
// file to its length, and flushes it.
#include "deepspeed/io/file_writer.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>
#include <vector>

#include <fcntl.h>
#include <unistd.h>

#include "deepspeed/base/error.h"
#include "deepspeed/base/text_file.h"
#include "deepspeed/io/queue/aligned_buffer.h"

namespace deepspeed::io {
namespace {

// Disks reach their full rate with a few requests of this size; larger ones only need memory.
constexpr size_t kBlockBytes = size_t{2} << 20;

/// Writes past the page cache. Several blocks are being written while the next is filled.
class DirectWriter : public FileWriter {
 public:
  /// Takes ownership of a file opened with O_DIRECT. If `queue` is null, uses the system's best.
  DirectWriter(int file, const WriterOptions& options, std::unique_ptr<TransferQueue> queue);
  ~DirectWriter() override;

  int reserve(uint64_t bytes) override;
  int write(const void* data, size_t size) override;
  int finish() override;

 private:
  char* block(size_t index) const { return buffer_.data() + index * block_bytes_; }
  void take_memory();
  /// Starts to write the filled block, and waits until the next one is free. Returns 0 or the first errno.
  int send_block();
  int wait_for_one();
  int wait_for_all();

  int file_;
  WriterOptions options_;
  std::unique_ptr<TransferQueue> queue_;
  AlignedBuffer buffer_;
  size_t block_bytes_ = 0;
  std::vector<size_t> writing_;  // by block: bytes that are being written, 0: none
  size_t current_ = 0;           // the block being filled
  size_t filled_ = 0;            // its bytes so far
  uint64_t sent_ = 0;            // bytes before the current block
  uint64_t reserved_ = 0;
};

DirectWriter::DirectWriter(int file, const WriterOptions& options, std::unique_ptr<TransferQueue> queue)
    : file_(file), options_(options), queue_(std::move(queue)) {}

DirectWriter::~DirectWriter() {
  queue_.reset();  // the kernel reads from the buffer until then
  if (file_ >= 0) ::close(file_);
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
  writing_.assign(num_blocks, 0);
  if (!queue_) queue_ = make_transfer_queue(num_blocks);
}

int DirectWriter::wait_for_one() {
  const Completion completion = queue_->wait();
  const size_t expected = std::exchange(writing_[completion.id], 0);
  // A write that ends early without an error means that the disk is full.
  if (completion.error != 0 || completion.bytes < expected)
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
  writing_[current_] = bytes;
  sent_ += filled_;
  filled_ = 0;
  current_ = (current_ + 1) % writing_.size();
  if (!options_.double_buffered && current_ == 0) return wait_for_all();
  while (writing_[current_] > 0) wait_for_one();
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

/// Writes through the page cache with write().
class PlainWriter : public FileWriter {
 public:
  /// Takes ownership of the open file.
  explicit PlainWriter(int file) : file_(file) {}
  ~PlainWriter() override;

  int reserve(uint64_t bytes) override;
  int write(const void* data, size_t size) override;
  int finish() override;

 private:
  int file_;
};

PlainWriter::~PlainWriter() {
  if (file_ >= 0) ::close(file_);
}

int PlainWriter::reserve(uint64_t bytes) {
  if (bytes == 0 || ::fallocate(file_, FALLOC_FL_KEEP_SIZE, 0, off_t(bytes)) == 0) return 0;
  return errno == ENOSPC || errno == EDQUOT ? keep(errno)
                                            : 0;  // otherwise the file system does not support it
}

int PlainWriter::write(const void* data, size_t size) {
  if (error_ != 0) return error_;
  const auto* bytes = static_cast<const char*>(data);
  while (size > 0) {
    const ssize_t count = ::write(file_, bytes, std::min<size_t>(size, 1u << 30));
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return keep(errno);
    bytes += count;
    size -= size_t(count);
  }
  return 0;
}

int PlainWriter::finish() {
  if (error_ != 0) return error_;
  if (::fsync(file_) != 0) return keep(errno);
  return ::close(std::exchange(file_, -1)) == 0 ? 0 : keep(errno);
}

[[noreturn]] void refuse(const std::filesystem::path& path, int error) {
  raise<IoError>("cannot create ", path, ": ", std::strerror(error), open_files_hint(error));
}

/// Opens a new file, removing any existing entry of that name. Returns -1, with errno, if it cannot.
int open_new(int folder, const std::filesystem::path& name, int flags) {
  constexpr int kNew = O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC;
  const int file = ::openat(folder, name.c_str(), kNew | flags, 0666);
  if (file >= 0 || errno != EEXIST || ::unlinkat(folder, name.c_str(), 0) != 0) return file;
  return ::openat(folder, name.c_str(), kNew | flags, 0666);
}

}  // namespace

std::unique_ptr<FileWriter> open_writer(const std::filesystem::path& path, const WriterOptions& options,
                                        int folder, std::unique_ptr<TransferQueue> queue) {
  const std::filesystem::path name = folder == AT_FDCWD ? path : path.filename();
  if (options.method == WriteMethod::kDirect) {
    const int file = open_new(folder, name, O_DIRECT);
    if (file >= 0) return std::make_unique<DirectWriter>(file, options, std::move(queue));
    // EINVAL: a file system without O_DIRECT, which may have created the file anyway.
    if (errno != EINVAL) refuse(path, errno);
  }
  const int file = open_new(folder, name, 0);
  if (file < 0) refuse(path, errno);
  return std::make_unique<PlainWriter>(file);
}

}  // namespace deepspeed::io
