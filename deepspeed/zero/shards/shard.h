// This rank's shard of one partitioned parameter, wherever it lies while nothing uses the parameter: beside
// it on the device, in the host's memory, or on a disk (shard_file.h).
#pragma once

#include <cstdint>

#include <ATen/core/Tensor.h>

#include "deepspeed/device/streams/stream_event.h"

namespace deepspeed::zero {

/// Of one thread at a time.
class Shard {
 public:
  Shard(int64_t numel, at::ScalarType dtype) : numel_(numel), dtype_(dtype) {}
  virtual ~Shard() = default;
  Shard(const Shard&) = delete;
  Shard& operator=(const Shard&) = delete;

  /// With padding.
  int64_t numel() const { return numel_; }
  at::ScalarType dtype() const { return dtype_; }
  int64_t bytes() const { return numel_ * static_cast<int64_t>(c10::elementSize(dtype_)); }

  /// (numel), shared with it; undefined where it lies on a disk.
  virtual at::Tensor memory() const { return {}; }
  /// It will be read soon: where that takes long, it starts now. False where there is no room for that.
  virtual bool start_read() { return true; }
  /// Copies it into `values`: (numel), of any device and dtype. On a device the copy is done where the
  /// current stream is. Throws IoError, naming the parameter.
  virtual void read(const at::Tensor& values) = 0;
  /// Takes the elements of `values`, of any device and dtype: (numel), or fewer, whose rest is padding.
  /// Throws IoError, naming the parameter.
  virtual void write(const at::Tensor& values) = 0;
  /// The same, but what takes long goes on beside the caller, and may fail later: see ShardFile.
  virtual void start_write(const at::Tensor& values) { write(values); }
  /// Before somebody else writes memory(): waits until a device has copied what was read of it.
  virtual void wait_for_reads() const {}

 private:
  int64_t numel_;
  at::ScalarType dtype_;
};

/// In memory of the host or of the device.
class MemoryShard final : public Shard {
 public:
  /// memory: (n), contiguous, shared with the caller. is_pinned: copies to a device need not wait.
  explicit MemoryShard(at::Tensor memory, bool is_pinned = false);

  at::Tensor memory() const override { return memory_; }
  void read(const at::Tensor& values) override;
  void write(const at::Tensor& values) override;
  void wait_for_reads() const override { read_.wait(); }

 private:
  at::Tensor memory_;
  bool is_pinned_;
  device::StreamEvent read_;  // the latest copy to a device
};

}  // namespace deepspeed::zero
