// This rank's shard of one partitioned parameter, kept while the parameter is not used. It is on the
// parameter's device, in host memory or on a disk (shard_file.h).
#pragma once

#include <cstdint>

#include <ATen/core/Tensor.h>

#include "deepspeed/device/streams/stream_uses.h"

namespace deepspeed::zero {

/// Holds this rank's shard of a parameter. Only one thread at a time may use it.
class Shard {
 public:
  Shard(int64_t numel, at::ScalarType dtype) : numel_(numel), dtype_(dtype) {}
  virtual ~Shard() = default;
  Shard(const Shard&) = delete;
  Shard& operator=(const Shard&) = delete;

  /// Returns the number of elements, with padding.
  int64_t numel() const { return numel_; }
  at::ScalarType dtype() const { return dtype_; }
  int64_t bytes() const { return numel_ * static_cast<int64_t>(c10::elementSize(dtype_)); }

  /// Returns the shard's memory, (numel), shared with it; undefined if it is on a disk.
  virtual at::Tensor memory() const { return {}; }
  /// Starts a slow read from a disk ahead of read(). Returns false if no buffer is free. A shard in memory
  /// does nothing and returns true.
  virtual bool start_read() { return true; }
  /// Copies the shard into `values`: (numel), on any device, of any dtype. The current stream copies to a
  /// device. Throws IoError naming the parameter.
  virtual void read(const at::Tensor& values) = 0;
  /// Writes the elements of `values`, on any device, of any dtype. They are (numel), or fewer if the rest is
  /// padding. Throws IoError naming the parameter.
  virtual void write(const at::Tensor& values) = 0;
  /// Writes like write(), but a disk is written in the background and may fail later. See
  /// ShardFile::finish_writes().
  virtual void start_write(const at::Tensor& values) { write(values); }
  /// Waits until no device copies from memory(). Call it before writing there.
  virtual void wait_for_reads() const {}

 private:
  int64_t numel_;
  at::ScalarType dtype_;
};

/// Holds a shard in host or device memory.
class MemoryShard final : public Shard {
 public:
  /// memory: (n), contiguous, shared with the caller. is_pinned: copies to a device need no wait.
  explicit MemoryShard(at::Tensor memory, bool is_pinned = false);

  at::Tensor memory() const override { return memory_; }
  void read(const at::Tensor& values) override;
  void write(const at::Tensor& values) override;
  void wait_for_reads() const override { reads_.wait(); }

 private:
  at::Tensor memory_;
  bool is_pinned_;
  device::StreamUses reads_;  // copies to a device
};

}  // namespace deepspeed::zero
