// Tracks the tensors born on the thread of a zero::Init: which of them are whole parameters, and their total
// bytes. The oldest are partitioned first. Initialisers usually run soon after the birth, so they find their
// parameter whole; a late one gathers it (new_parameter.h).
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

#include "deepspeed/tensor/named_tensor.h"
#include "deepspeed/zero/access/gather_pool.h"
#include "deepspeed/zero/construction/new_parameter.h"
#include "deepspeed/zero/layout/zero_groups.h"
#include "deepspeed/zero/shards/shard_home.h"

namespace deepspeed::zero {

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
  /// Begins a construction on the calling thread. If shards go to a disk it is collective, throws IoError on
  /// all ranks if one has no disk, and ConfigError for no buffers.
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

  /// Ends the construction, partitions the remaining parameters and gives all to a pool. They are used
  /// through it until initialize() takes them. Throws UsageError if a GatheredParameters holds one.
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
