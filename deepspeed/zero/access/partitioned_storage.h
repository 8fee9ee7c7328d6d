// The storage of one partitioned parameter, or of a low-precision copy of one: this rank holds a shard, and
// the whole is gathered from the shards of all ranks while operators use it.
#pragma once

#include <memory>
#include <string>

#include <ATen/core/Tensor.h>

#include "deepspeed/zero/access/gather_bucket.h"
#include "deepspeed/zero/access/live_set.h"
#include "deepspeed/zero/shards/shard.h"
#include "deepspeed/zero/storage/holdable_storage.h"

namespace deepspeed::zero {

class GatherPool;

struct PartitionedTraits {
  bool is_persistent = false;  // it stays whole once it was gathered, until the shards change
  bool is_trained = true;      // it needs a gradient
  bool is_matrix = true;       // it has two dimensions or more
};

/// Made by GatherPool. Any thread may call.
class PartitionedStorage final : public HoldableStorage,
                                 public std::enable_shared_from_this<PartitionedStorage> {
 public:
  enum class State { kPartitioned, kGathering, kWhole };

  /// Makes the storage of a parameter of `numel` elements on `device`. shard: (ceil(numel / world size)).
  PartitionedStorage(std::shared_ptr<GatherPool> pool, std::string name, int64_t numel, at::Device device,
                     std::shared_ptr<Shard> shard, PartitionedTraits traits);
  /// Makes the storage of a copy of `source` in another type, which each gather makes anew from the shards.
  PartitionedStorage(std::shared_ptr<PartitionedStorage> source, at::ScalarType dtype);
  ~PartitionedStorage() override;

  /// "h.0.weight", or "h.0.weight in BFloat16".
  const std::string& name() const override { return name_; }
  int64_t numel() const { return numel_; }
  /// The shard of a parameter; null for a copy.
  const std::shared_ptr<Shard>& shard() const { return shard_; }
  /// Whether it stays whole once it was gathered, until the shards change.
  bool is_persistent() const { return persistent_; }
  const std::shared_ptr<GatherPool>& pool() const { return pool_; }
  State state() const;

  void begin_use(const std::string& op, bool writes) override;
  void end_use() override;
  std::shared_ptr<StorageRecord> cast(at::ScalarType dtype) override;
  void on_storage_lost() noexcept override;
  std::string text_where_empty() const override;

  const comm::ProcessGroup& group() const override;
  bool was_written() const override { return was_written_; }
  void hold(bool writable) override;
  void write_back(int modifier_rank) override;
  void leave_to_aliases(const at::Tensor& param) override;
  void drop_hold(bool forget_writes) noexcept override;

 private:
  friend class GatherPool;

  // Keys in traces are multiples of it for parameters; the keys of a parameter's copies follow, one a type.
  static constexpr uint64_t kKeysPerParam = 256;

  bool is_copy() const { return source_ != nullptr; }

  const std::shared_ptr<GatherPool> pool_;
  const std::string name_;
  const int64_t numel_;
  const at::ScalarType dtype_;
  const at::Device device_;
  const bool persistent_;
  const bool is_trained_;
  const bool is_matrix_;
  const std::shared_ptr<Shard> shard_;
  const std::shared_ptr<PartitionedStorage> source_;  // of a copy
  const int64_t source_version_ = 0;                  // when the copy was made

  // Under the pool's lock.
  uint64_t key_ = 0;
  State state_ = State::kPartitioned;
  int num_uses_ = 0;            // operators that run
  int num_holds_ = 0;           // GatheredParameters
  bool writable_ = false;       // under GatheredParameters
  bool is_kept_ = false;        // a copy that was written to stays whole
  bool was_written_ = false;    // by an operator, since the latest hold
  bool is_rounded_ = false;     // what is whole of it, or on its way, was quantized
  bool was_set_ = false;        // the shard got other values than the optimizer's
  bool is_given_back_ = false;  // its parameter is an ordinary tensor over other memory
  int64_t version_ = 0;         // counts the changes of the shards
  // This rank's part of what was gathered last over all ranks, for gathers over the pool's secondary group.
  std::shared_ptr<MemoryShard> secondary_;
  int64_t secondary_version_ = -1;     // of the shards then
  bool is_secondary_rounded_ = false;  // as is_rounded_ was then
  at::Tensor before_;  // what it was when one began to write it that others read, until that ends
  at::Tensor whole_;   // (world size * shard numel), its first numel_ elements are the parameter's
  // While kGathering: the bucket that brings it, and its place there; null for a copy made of a whole source.
  std::shared_ptr<GatherBucket> gather_;
  size_t place_in_gather_ = 0;
  // Its place in the pool's set of live storages, unless kPartitioned.
  LiveSet<PartitionedStorage>::Place place_;
};

}  // namespace deepspeed::zero
