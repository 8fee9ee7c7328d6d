// Shards that lie in a file on a disk and pass through a bounded number of buffers in the host's memory:
// read ahead of their use where the caller knows what comes next.
//
// After "ZeRO-Infinity: Breaking the GPU Memory Wall for Extreme Scale Deep Learning" (2021), 5.2.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "deepspeed/device/streams/stream_event.h"
#include "deepspeed/io/async_io.h"
#include "deepspeed/zero/shards/shard.h"

namespace deepspeed::zero {

struct ShardFileOptions {
  std::filesystem::path folder = {};  // made where it is not there
  io::AsyncIoOptions aio = {};
  int64_t buffer_count = 5;            // shards in memory at one time, at most
  int64_t buffer_numel = 100'000'000;  // elements of the largest shard
  bool pin_memory = false;             // page-locked buffers
};

/// Holds shards in a file without a name, which is gone with the process, however that ends. Any thread may
/// call.
class ShardFile : public std::enable_shared_from_this<ShardFile> {
 public:
  /// Throws IoError where there can be no file in the folder, naming it, ConfigError for no buffers.
  explicit ShardFile(ShardFileOptions options);
  ~ShardFile();
  ShardFile(const ShardFile&) = delete;
  ShardFile& operator=(const ShardFile&) = delete;

  /// Makes a place for a shard of the parameter `name` and takes its room on the disk at once. Its elements
  /// are unspecified until they are written. Throws IoError where the disk has no room, naming folder and
  /// bytes, ConfigError where the shard is larger than a buffer.
  std::shared_ptr<Shard> add(std::string name, int64_t numel, at::ScalarType dtype);

  /// Waits for the writes that start_write() has started. Throws IoError, naming a parameter whose shard is
  /// lost.
  void finish_writes();

  /// The bytes on the disk.
  int64_t file_bytes() const;
  /// The bytes of the memory through which shards pass.
  int64_t buffer_bytes() const;

 private:
  class FileShard;
  friend class FileShard;

  /// Memory for one shard.
  struct Buffer {
    at::Tensor memory;
    char* data = nullptr;               // aligned
    const FileShard* holder = nullptr;  // whose elements it has or gets; null: free
    uint64_t ticket = 0;                // of a transfer under way; 0: none
    bool is_written = false;            // it has its elements, which are on their way to the disk
    uint64_t age = 0;                   // counts the transfers
    device::StreamEvent copied;         // a device has copied what was in it
  };

  bool start_read(const FileShard& shard);
  void read(const FileShard& shard, const at::Tensor& values);
  void write(const FileShard& shard, const at::Tensor& values);
  void start_write(const FileShard& shard, const at::Tensor& values);

  // Callers of the functions below hold the lock.
  void make_buffers();
  Buffer* find(const FileShard& shard);
  Buffer* find_free();
  /// Returns a free buffer. If there is none, it waits for the oldest write; without one it drops what was
  /// read ahead for the farthest use.
  Buffer& take_buffer();
  void start(io::Transfer::Kind kind, const FileShard& shard, Buffer& buffer);
  /// Waits for the transfer; the buffer is free after an error, and after a write.
  void finish(Buffer& buffer);
  Buffer& fill(const FileShard& shard, const at::Tensor& values);
  void forget(const FileShard& shard) noexcept;
  void drop(Buffer& buffer) noexcept;

  const ShardFileOptions options_;
  int file_ = -1;
  mutable std::mutex mutex_;
  int64_t file_bytes_ = 0;
  int64_t num_shards_ = 0;
  size_t largest_ = 0;  // bytes of a shard, in whole pages
  size_t buffer_size_ = 0;
  uint64_t num_transfers_ = 0;
  std::vector<Buffer> buffers_;
  std::unique_ptr<io::AsyncIo> io_;  // declared last: it stops before the memory that it uses is freed
};

}  // namespace deepspeed::zero
