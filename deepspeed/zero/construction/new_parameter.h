// The storage of a parameter partitioned during its zero::Init. An operator that uses it gathers it. It stays
// whole and can be read and written freely until its Construction (construction.h) partitions it again with
// rank 0's values.
#pragma once

#include <memory>
#include <string>

#include <ATen/core/Tensor.h>

#include "deepspeed/zero/layout/zero_groups.h"
#include "deepspeed/zero/shards/shard.h"
#include "deepspeed/zero/storage/holdable_storage.h"

namespace deepspeed::zero {

class Construction;

/// Stores a parameter partitioned while its model is built. Any use on a thread other than the construction's
/// throws UsageError.
class NewParameter final : public HoldableStorage, public std::enable_shared_from_this<NewParameter> {
 public:
  /// Partitions `param`, a dense tensor, with rank 0's values. Its shards have the dtype of `sent`, on whose
  /// device ranks exchange them. place: for this rank's shard; null: memory of that device. Collective.
  /// Throws IoError if the place is a disk.
  static std::shared_ptr<NewParameter> partition(const at::Tensor& param, std::string name,
                                                 const ZeroGroups& ranks, const at::TensorOptions& sent,
                                                 std::shared_ptr<Shard> place,
                                                 std::weak_ptr<Construction> construction);

  const std::string& name() const override { return name_; }
  /// Returns this rank's shard, ceil(numel / shard ranks) elements with padding. It is up to date while the
  /// parameter is not whole.
  const std::shared_ptr<Shard>& shard() const { return shard_; }
  bool is_whole() const { return whole_.defined(); }
  /// Returns the bytes of the whole parameter.
  int64_t bytes() const { return numel_ * static_cast<int64_t>(dtype_.itemsize()); }
  bool is_in_use() const { return num_uses_ > 0 || num_holds_ > 0; }
  bool is_held() const { return num_holds_ > 0; }

  /// Makes the parameter whole. Collective unless it is whole already.
  void gather();
  /// Partitions the parameter again with rank 0's values. Collective if it is whole.
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

  /// Sets this rank's shard from rank 0's `values`.
  void take_shard(const at::Tensor& values);
  /// Returns the shard on the device on which ranks exchange, (shard numel). It is not copied if already
  /// there.
  at::Tensor shard_to_send() const;
  at::Tensor gathered_shards() const;
  /// Returns whether the whole data is the shard itself, which happens with one rank.
  bool is_its_shard() const { return whole_.is_same(shard_->memory()); }
  Construction& require_construction(const std::string& op) const;

  const std::string name_;
  const ZeroGroups ranks_;
  const int64_t numel_;
  const caffe2::TypeMeta dtype_;  // of the whole, as built
  const at::Device device_;
  const std::weak_ptr<Construction> construction_;
  const at::TensorOptions sent_;
  const bool has_place_;
  std::shared_ptr<Shard> shard_;
  at::Tensor whole_;  // (shard ranks * shard numel) while whole; with one rank it may be the shard
  int num_uses_ = 0;  // running operators
  int num_holds_ = 0;
  bool was_written_ = false;  // by an operator, since the latest hold
};

}  // namespace deepspeed::zero
