// This rank's shard of one partitioned parameter, wherever it lies while nothing uses the parameter: beside
// it on the device, in the host's memory, or on a disk (shard_file.h).
#pragma once

#include <cstdint>

#include <ATen/core/Tensor.h>

#include "deepspeed/device/streams/stream_uses.h"

namespace deepspeed::zero {

/// One thread at a time uses it.
class Shard {
 public:
  Shard(int64_t numel, at::ScalarType dtype) : numel_(numel), dtype_(dtype) {}
  virtual ~Shard() = default;
  Shard(const Shard&) = delete;
  Shard& operator=(const Shard&) = delete;

  /// Elements, with padding.
  int64_t numel() const { return numel_; }
  at::ScalarType dtype() const { return dtype_; }
  int64_t bytes() const { return numel_ * static_cast<int64_t>(c10::elementSize(dtype_)); }

  /// The shard's memory, (numel), shared with it; undefined where it lies on a disk.
  virtual at::Tensor memory() const { return {}; }
  /// Starts a read that takes long, from a disk, ahead of read(). False where there is no room for that.
  virtual bool start_read() { return true; }
  /// Copies the shard into `values`: (numel), of any device and dtype. The current stream makes the copy to a
  /// device. Throws IoError, naming the parameter.
  virtual void read(const at::Tensor& values) = 0;
  /// Takes the elements of `values`, of any device and dtype: (numel), or fewer, whose rest is padding.
  /// Throws IoError, naming the parameter.
  virtual void write(const at::Tensor& values) = 0;
  /// Takes the elements as write() does, but a disk is written beside the caller and may fail later: see
  /// ShardFile::finish_writes().
  virtual void start_write(const at::Tensor& values) { write(values); }
  /// Waits until no device copies from memory() any more; call it before writing there.
  virtual void wait_for_reads() const {}

 private:
  int64_t numel_;
  at::ScalarType dtype_;
};

/// A shard in memory of the host or of the device.
class MemoryShard final : public Shard {
 public:
  /// memory: (n), contiguous, shared with the caller. is_pinned: copies to a device need not wait.
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
