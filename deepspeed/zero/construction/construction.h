// Tracks the tensors born on the thread of a zero::Init: which of them are whole parameters, and their total
// bytes. The oldest are partitioned first. Initialisers usually run soon after the birth, so they find their
// parameter whole; a late one gathers it (NewParameter).
//
// A tensor is partitioned if it looks like a parameter: a dense floating-point leaf that requires a gradient
// and shares its memory with no other tensor. Everything else (buffers, temporaries, memory of views) is left
// alone. Operators of the thread gather what they use and keep what they write, so tensors that only look
// like parameters also have the right values.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include <ATen/core/Tensor.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

#include "deepspeed/tensor/named_tensor.h"
#include "deepspeed/zero/access/gather_pool.h"
#include "deepspeed/zero/layout/zero_groups.h"
#include "deepspeed/zero/shards/shard.h"
#include "deepspeed/zero/shards/shard_home.h"
#include "deepspeed/zero/storage/holdable_storage.h"

namespace deepspeed::zero {

class Construction;

/// Makes torch call the Construction first. It comes before the key of partitioned parameters
/// (storage_record.h).
constexpr c10::DispatchKey kConstructionKey = c10::DispatchKey::TESTING_ONLY_GenericMode;

/// Hides this thread's operators from the Construction while the pause exists.
class ConstructionPause {
 public:
  ConstructionPause() = default;

 private:
  c10::impl::ExcludeDispatchKeyGuard exclude_{kConstructionKey};
};

/// Stores a parameter that its Construction has partitioned. An operator that uses the parameter gathers it.
/// The parameter then stays whole, and can be read and written freely, until the Construction partitions it
/// again with rank 0's values. Any use on a thread other than the construction's throws UsageError.
class NewParameter final : public HoldableStorage, public std::enable_shared_from_this<NewParameter> {
 public:
  /// Partitions `param`, a dense tensor, with rank 0's values. Its shards have the dtype of `sent`, on whose
  /// device ranks exchange them. place: takes this rank's shard; null: the shard gets memory on that device.
  /// Collective. Throws IoError if the place is on a disk that fails.
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
  /// Makes the parameter whole and returns a copy of its values, (numel). Collective.
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

  /// Sends rank 0's `values` to all ranks and sets this rank's shard from them. Collective.
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
  bool was_written_ = false;  // by an operator, since the latest writable hold
};

struct ConstructionOptions {
  std::optional<at::ScalarType> dtype;  // dtype of the finished parameters; absent: as built
  at::Device device = at::kCPU;         // of the finished parameters; ranks exchange them there
  ShardHomeOptions home = {};           // the place of the shards
  int64_t max_whole_bytes = 0;          // bytes that stay whole, not counting the newest tensor
  GatherPoolOptions pool = {};          // from the end until initialize()
  std::function<bool(const at::Tensor&)> stays_whole = {};  // says which parameters stay whole; null: none
};

class Construction : public std::enable_shared_from_this<Construction> {
 public:
  /// Begins a construction on the calling thread. Collective if shards are kept elsewhere than on the
  /// device. With shards on a disk, throws IoError on all ranks if one of them cannot create its file, and
  /// ConfigError if options.home.file allows no buffers.
  Construction(ZeroGroups ranks, const ConstructionOptions& options);

  const ZeroGroups& ranks() const { return ranks_; }
  const ConstructionOptions& options() const { return options_; }
  bool is_of_this_thread() const { return std::this_thread::get_id() == thread_; }

  /// Partitions the oldest parameters until the rest fits max_whole_bytes. Collective, like all calls below
  /// except note_birth().
  void make_room();
  /// Notes a tensor that may become a parameter.
  void note_birth(const at::Tensor& tensor);
  void make_whole(NewParameter& param);
  /// Partitions the tensor now, if it is a whole parameter of this construction.
  void partition_if_born_here(const at::Tensor& tensor);

  /// Ends the construction, partitions the remaining parameters and gives all to a pool. Operators gather
  /// them through the pool until initialize() takes them over. Throws UsageError if a GatheredParameters
  /// holds one.
  void hand_over();
  /// Ends the construction of a model with known parameters. All `params` go to the pool, also those that do
  /// not require a gradient, share memory, or are on the meta device (NaN until they get values). Everything
  /// else becomes an ordinary tensor again.
  void hand_over(const std::vector<NamedTensor>& params);

 private:
  using WeakTensor = c10::weak_intrusive_ptr<c10::TensorImpl>;

  at::TensorOptions shard_options(const at::Tensor& param) const;
  /// Makes host or disk space for a shard; null if shards stay on the device.
  std::shared_ptr<Shard> make_place(const std::string& name, const at::Tensor& param);
  void partition(const at::Tensor& param);
  bool stays_whole(const at::Tensor& param) const {
    return options_.stays_whole && options_.stays_whole(param);
  }
  void warn_of_whole_parameters() const;
  /// Returns the whole parameters that were never partitioned, oldest first. Forgets destroyed ones.
  std::vector<at::Tensor> whole_newborns();
  /// Returns the partitioned parameters that still exist.
  std::vector<at::Tensor> partitioned() const;
  void keep_limit(int64_t max_whole_bytes, bool spare_newest);
  void give_back_all_but(const std::vector<NamedTensor>& kept);
  std::shared_ptr<GatherPool> make_pool() const;
  void hand_over(GatherPool& pool, const at::Tensor& tensor, const std::string& name) const;
  void hand_over_unset(GatherPool& pool, const at::Tensor& tensor, const std::string& name);

  const ZeroGroups ranks_;
  const ConstructionOptions options_;
  std::optional<ShardHome> home_;  // absent: the shards are on the device
  const std::thread::id thread_ = std::this_thread::get_id();
  std::vector<WeakTensor> newborns_;
  std::vector<WeakTensor> partitioned_;
  std::vector<std::weak_ptr<NewParameter>> whole_again_;
  int64_t whole_bytes_ = 0;  // an upper bound: everything born since the last check counts
  int64_t num_params_ = 0;
  int64_t num_left_whole_ = 0;
};

}  // namespace deepspeed::zero
