// Shards in a file that pass through a few buffers, under one lock.
//
// A buffer is free or holds one shard that is read ahead (start_read) or written (fill, start). read() takes
// the shard's buffer, or reads into one now, copies to the caller and frees the buffer. The `copied` event
// prevents reuse while a device still copies from it. write() waits for its transfer. start_write() leaves
// the wait to finish_writes() or to the next taker of the buffer (take_buffer).
//
// take_buffer() waits for the oldest write first, because dropped read-aheads would have to be repeated. If a
// shard is written while it is being read ahead, that read is dropped. The buffers are made at first use,
// when the largest shard is known.
#include "deepspeed/zero/shards/shard_file.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include <ATen/ops/from_blob.h>

#include "deepspeed/base/error.h"
#include "deepspeed/device/accelerator/host_memory.h"

namespace deepspeed::zero {
namespace {

ShardFileOptions checked(ShardFileOptions options) {
  if (options.buffer_count < 1) {
    raise<ConfigError>("offload_param.buffer_count is ", options.buffer_count,
                       ", expected at least 1: parameters on a disk pass through these buffers");
  }
  return options;
}

}  // namespace

/// Reads and writes one shard in the file, and keeps the file alive.
class ShardFile::FileShard final : public Shard {
 public:
  FileShard(std::shared_ptr<ShardFile> file, std::string name, int64_t numel, at::ScalarType dtype,
            uint64_t offset)
      : Shard(numel, dtype), file_(std::move(file)), name_(std::move(name)), offset_(offset) {}
  ~FileShard() override { file_->forget(*this); }

  const std::string& name() const { return name_; }
  uint64_t offset() const { return offset_; }
  size_t page_bytes() const { return io::align_up(size_t(bytes())); }

  bool start_read() override { return file_->start_read(*this); }
  void read(const at::Tensor& values) override { file_->read(*this, values); }
  void write(const at::Tensor& values) override { file_->write(*this, values); }
  void start_write(const at::Tensor& values) override { file_->start_write(*this, values); }

 private:
  std::shared_ptr<ShardFile> file_;
  std::string name_;
  uint64_t offset_;
};

ShardFile::ShardFile(ShardFileOptions options)
    : options_(checked(std::move(options))), file_(options_.folder, "offload_param.nvme_path") {}

std::shared_ptr<Shard> ShardFile::add(std::string name, int64_t numel, at::ScalarType dtype) {
  const std::lock_guard lock(mutex_);
  if (numel > options_.buffer_numel) {
    raise<ConfigError>("offload_param.buffer_size is ", options_.buffer_numel,
                       " elements, but each rank's shard of parameter '", name, "' has ", numel,
                       "; raise buffer_size");
  }
  const size_t reserved = io::align_up(size_t(numel) * c10::elementSize(dtype));
  const uint64_t offset = file_.grow(reserved, "parameters");
  ++num_shards_;
  largest_ = std::max(largest_, reserved);
  return std::make_shared<FileShard>(shared_from_this(), std::move(name), numel, dtype, offset);
}

int64_t ShardFile::file_bytes() const {
  const std::lock_guard lock(mutex_);
  return file_.bytes();
}

int64_t ShardFile::buffer_bytes() const {
  const std::lock_guard lock(mutex_);
  return static_cast<int64_t>(buffers_.size() * buffer_size_);
}

/// Makes a buffer per shard, at most buffer_count, each large enough for any shard.
void ShardFile::make_buffers() {
  const auto wanted = static_cast<size_t>(std::min(options_.buffer_count, num_shards_));
  if (buffers_.size() >= wanted && buffer_size_ >= largest_) return;
  for (Buffer& buffer : buffers_) {
    if (buffer.is_written) finish(buffer);
    drop(buffer);
  }
  io_.reset();
  buffers_.clear();
  buffer_size_ = largest_;
  const auto bytes = static_cast<int64_t>(buffer_size_ + io::kDirectAlignment);
  std::vector<io::MemoryRegion> regions;
  for (size_t index = 0; index < wanted; ++index) {
    Buffer& buffer = buffers_.emplace_back();
    buffer.memory = device::empty_host(bytes, at::kByte, options_.pin_memory);
    auto* const begin = static_cast<char*>(buffer.memory.mutable_data_ptr());
    buffer.data =
        begin + (io::align_up(reinterpret_cast<uintptr_t>(begin)) - reinterpret_cast<uintptr_t>(begin));
    regions.push_back({buffer.data, buffer_size_});
  }
  io_ = std::make_unique<io::AsyncIo>(options_.aio, regions);
}

ShardFile::Buffer* ShardFile::find(const FileShard& shard) {
  for (Buffer& buffer : buffers_) {
    if (buffer.holder == &shard) return &buffer;
  }
  return nullptr;
}

ShardFile::Buffer* ShardFile::find_free() {
  for (Buffer& buffer : buffers_) {
    if (buffer.holder == nullptr) return &buffer;
  }
  return nullptr;
}

ShardFile::Buffer& ShardFile::take_buffer() {
  Buffer* found = find_free();
  if (found == nullptr) {
    // The oldest write comes first. Without a write, the newest read is dropped, which is for the farthest
    // use.
    found = &*std::ranges::min_element(buffers_, {}, [](const Buffer& buffer) {
      return std::pair(!buffer.is_written, buffer.is_written ? buffer.age : ~buffer.age);
    });
    found->is_written ? finish(*found) : drop(*found);
  }
  found->copied.wait();
  return *found;
}

void ShardFile::start(io::Transfer::Kind kind, const FileShard& shard, Buffer& buffer) {
  buffer.ticket = io_->start({kind, file_.handle(), buffer.data, shard.page_bytes(), shard.offset()});
  buffer.is_written = kind == io::Transfer::Kind::kWrite;
  buffer.holder = &shard;
  buffer.age = ++num_transfers_;
}

void ShardFile::finish(Buffer& buffer) {
  if (buffer.ticket == 0) return;
  const FileShard& shard = *buffer.holder;
  const bool is_written = std::exchange(buffer.is_written, false);
  const io::Completion done = io_->wait(std::exchange(buffer.ticket, 0));
  const bool has_failed = done.error != 0 || done.bytes < size_t(shard.bytes());
  if (is_written || has_failed) buffer.holder = nullptr;
  if (!has_failed) return;
  if (is_written) {
    // This error stands for all writes in flight. The others must not throw later, in calls for other shards.
    for (Buffer& other : buffers_) {
      if (other.is_written) drop(other);
    }
  }
  raise<IoError>("offload_param.nvme_path: cannot ", is_written ? "write" : "read",
                 " the shard of parameter '", shard.name(), "' in ", options_.folder, ": ",
                 done.error != 0 ? std::strerror(done.error) : "the file ended");
}

void ShardFile::drop(Buffer& buffer) noexcept {
  try {
    if (buffer.holder != nullptr) finish(buffer);
  } catch (const std::exception&) {
    // The values are not needed any more. The next read reports a disk error.
  }
  buffer.holder = nullptr;
}

void ShardFile::forget(const FileShard& shard) noexcept {
  const std::lock_guard lock(mutex_);
  if (Buffer* const buffer = find(shard)) drop(*buffer);
}

bool ShardFile::start_read(const FileShard& shard) {
  const std::lock_guard lock(mutex_);
  make_buffers();
  if (find(shard) != nullptr) return true;
  Buffer* const buffer = find_free();
  if (buffer == nullptr) return false;
  buffer->copied.wait();
  start(io::Transfer::Kind::kRead, shard, *buffer);
  return true;
}

void ShardFile::read(const FileShard& shard, const at::Tensor& values) {
  const std::lock_guard lock(mutex_);
  make_buffers();
  Buffer* buffer = find(shard);
  if (buffer == nullptr) {
    buffer = &take_buffer();
    start(io::Transfer::Kind::kRead, shard, *buffer);
  }
  if (!buffer->is_written) finish(*buffer);
  const at::Tensor elements = at::from_blob(buffer->data, {shard.numel()}, shard.dtype());
  values.copy_(elements, /*non_blocking=*/options_.pin_memory);
  if (options_.pin_memory) buffer->copied = device::StreamEvent(values.device());
  if (!buffer->is_written) buffer->holder = nullptr;
}

ShardFile::Buffer& ShardFile::fill(const FileShard& shard, const at::Tensor& values) {
  make_buffers();
  if (Buffer* const stale = find(shard)) drop(*stale);
  Buffer& buffer = take_buffer();
  const at::Tensor elements = at::from_blob(buffer.data, {shard.numel()}, shard.dtype());
  elements.narrow(0, 0, values.numel()).copy_(values);
  elements.narrow(0, values.numel(), shard.numel() - values.numel()).zero_();
  start(io::Transfer::Kind::kWrite, shard, buffer);
  return buffer;
}

void ShardFile::write(const FileShard& shard, const at::Tensor& values) {
  const std::lock_guard lock(mutex_);
  finish(fill(shard, values));
}

void ShardFile::start_write(const FileShard& shard, const at::Tensor& values) {
  const std::lock_guard lock(mutex_);
  fill(shard, values);
}

void ShardFile::finish_writes() {
  const std::lock_guard lock(mutex_);
  for (Buffer& buffer : buffers_) {
    if (buffer.is_written) finish(buffer);
  }
}

}  // namespace deepspeed::zero
