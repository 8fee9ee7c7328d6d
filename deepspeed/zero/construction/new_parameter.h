// The storage of a parameter that was partitioned while the zero::Init under which it was born lives: an
// operator that uses it gathers it, and it stays whole, to be read and written by anything, until its
// Construction (construction.h) partitions it again, with rank 0's values.
#pragma once

#include <memory>
#include <string>

#include <ATen/core/Tensor.h>

#include "deepspeed/zero/layout/zero_groups.h"
#include "deepspeed/zero/shards/shard.h"
#include "deepspeed/zero/storage/holdable_storage.h"

namespace deepspeed::zero {

class Construction;

/// Used on the thread of its construction alone; on another one every use throws UsageError.
class NewParameter final : public HoldableStorage, public std::enable_shared_from_this<NewParameter> {
 public:
  /// Partitions `param`, a dense tensor: rank 0's values. Its shards are of the type of `sent`, on whose
  /// device ranks exchange them. place: where this rank's shard is to lie; null: in memory of that device.
  /// Collective. Throws IoError where the place is a disk.
  static std::shared_ptr<NewParameter> partition(const at::Tensor& param, std::string name,
                                                 const ZeroGroups& ranks, const at::TensorOptions& sent,
                                                 std::shared_ptr<Shard> place,
                                                 std::weak_ptr<Construction> construction);

  const std::string& name() const override { return name_; }
  /// This rank's shard, ceil(numel / shard ranks) elements with padding; up to date while the parameter is
  /// not whole.
  const std::shared_ptr<Shard>& shard() const { return shard_; }
  bool is_whole() const { return whole_.defined(); }
  /// The bytes of the whole parameter.
  int64_t bytes() const { return numel_ * static_cast<int64_t>(dtype_.itemsize()); }
  bool is_in_use() const { return num_uses_ > 0 || num_holds_ > 0; }
  bool is_held() const { return num_holds_ > 0; }

  /// Makes it whole; collective, unless it is whole already.
  void gather();
  /// Partitions it again: rank 0's values. Collective, where it is whole.
  void release();
  /// Returns a copy of all values, (numel). Collective.
  at::Tensor values();

  void begin_use(const std::string& op, bool writes) override;
  void end_use() override { --num_uses_; }
  std::shared_ptr<StorageRecord> cast(at::ScalarType) override { return nullptr; }
  void on_storage_lost() noexcept override {}
  std::string text_where_empty() const override;

  const comm::ProcessGroup& group() const override { return ranks_.data; }
  bool was_written() const override { return was_written_; }
  void hold(bool writable) override;
  void write_back(int modifier_rank) override;
  void drop_hold(bool writable, bool forget_writes) noexcept override;

 private:
  NewParameter(const at::Tensor& param, std::string name, const ZeroGroups& ranks,
               const at::TensorOptions& sent, std::shared_ptr<Shard> place,
               std::weak_ptr<Construction> construction);

  /// Takes this rank's shard from rank 0's `values`.
  void take_shard(const at::Tensor& values);
  /// Returns the shard on the device where ranks exchange it, (shard numel): the shard itself, if it lies
  /// there.
  at::Tensor shard_to_send() const;
  at::Tensor gathered_shards() const;
  /// Whether the whole data is the shard itself, which happens with one rank.
  bool is_its_shard() const { return whole_.is_same(shard_->memory()); }
  Construction& require_construction(const std::string& op) const;

  const std::string name_;
  const ZeroGroups ranks_;
  const int64_t numel_;
  const caffe2::TypeMeta dtype_;  // of the whole, as it was born
  const at::Device device_;
  const std::weak_ptr<Construction> construction_;
  const at::TensorOptions sent_;
  const bool has_place_;
  std::shared_ptr<Shard> shard_;
  at::Tensor whole_;  // (shard ranks * shard numel) while it is whole; with one rank it may be the shard
  int num_uses_ = 0;  // operators that run
  int num_holds_ = 0;
  bool was_written_ = false;  // by an operator, since the latest hold
};

}  // namespace deepspeed::zero
