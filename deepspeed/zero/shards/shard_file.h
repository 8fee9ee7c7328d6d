// Keeps shards in a file on a disk. They pass through a limited number of buffers in host memory, and are
// read ahead of their use if the caller knows what comes next.
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
#include "deepspeed/io/scratch_file.h"
#include "deepspeed/zero/shards/shard.h"

namespace deepspeed::zero {

struct ShardFileOptions {
  std::filesystem::path folder = {};  // created if it does not exist
  io::AsyncIoOptions aio = {};
  int64_t buffer_count = 5;            // the most shards in memory at one time
  int64_t buffer_numel = 100'000'000;  // elements of the largest shard
  bool pin_memory = false;             // page-locked buffers
};

/// Holds shards in an unnamed file, which disappears with the process, however that ends. Thread-safe.
class ShardFile : public std::enable_shared_from_this<ShardFile> {
 public:
  /// Creates the file. Throws IoError naming the folder if it cannot be created. Throws ConfigError if
  /// buffer_count is below 1.
  explicit ShardFile(ShardFileOptions options);
  ShardFile(const ShardFile&) = delete;
  ShardFile& operator=(const ShardFile&) = delete;

  /// Makes a place for a shard of parameter `name`. Reserves its disk space at once. Its elements are
  /// undefined until written. Throws IoError naming folder and bytes if the disk is full. Throws ConfigError
  /// if the shard is larger than a buffer.
  std::shared_ptr<Shard> add(std::string name, int64_t numel, at::ScalarType dtype);

  /// Waits for the writes that start_write() has started. Throws IoError naming a parameter whose shard is
  /// lost.
  void finish_writes();

  /// Returns the bytes on the disk.
  int64_t file_bytes() const;
  /// Returns the bytes of the buffers.
  int64_t buffer_bytes() const;

 private:
  class FileShard;
  friend class FileShard;

  /// Holds memory for one shard.
  struct Buffer {
    at::Tensor memory;
    char* data = nullptr;               // aligned
    const FileShard* holder = nullptr;  // the shard whose elements it has or gets; null: free
    uint64_t ticket = 0;                // of a transfer in flight; 0: none
    bool is_written = false;            // its elements are on their way to the disk
    uint64_t age = 0;                   // the number of its latest transfer
    device::StreamEvent copied;         // a device has copied its former contents
  };

  bool start_read(const FileShard& shard);
  void read(const FileShard& shard, const at::Tensor& values);
  void write(const FileShard& shard, const at::Tensor& values);
  void start_write(const FileShard& shard, const at::Tensor& values);

  // Callers of the functions below hold the lock.
  void make_buffers();
  Buffer* find(const FileShard& shard);
  Buffer* find_free();
  /// Returns a free buffer. If there is none, waits for the oldest write. Without a write, drops what was
  /// read ahead for the farthest use.
  Buffer& take_buffer();
  void start(io::Transfer::Kind kind, const FileShard& shard, Buffer& buffer);
  /// Waits for the buffer's transfer. The buffer is free after an error and after a write. Throws IoError.
  void finish(Buffer& buffer);
  Buffer& fill(const FileShard& shard, const at::Tensor& values);
  void forget(const FileShard& shard) noexcept;
  void drop(Buffer& buffer) noexcept;

  const ShardFileOptions options_;
  io::ScratchFile file_;
  mutable std::mutex mutex_;
  int64_t num_shards_ = 0;
  size_t largest_ = 0;  // bytes of a shard, in whole pages
  size_t buffer_size_ = 0;
  uint64_t num_transfers_ = 0;
  std::vector<Buffer> buffers_;
  std::unique_ptr<io::AsyncIo> io_;  // declared last: it stops before the memory it uses is freed
};

}  // namespace deepspeed::zero
