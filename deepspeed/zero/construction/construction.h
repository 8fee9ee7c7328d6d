// What a zero::Init knows of the tensors that are born on its thread: which of them are whole parameters, and
// how many bytes they take together. The oldest are partitioned first, so that initialisers, which run soon
// after the birth as a rule, find their parameter whole; one that comes late gathers it (new_parameter.h).
//
// A tensor is partitioned where it looks like a parameter: a leaf that requires a gradient, dense, of a
// floating type, whose memory no other tensor shares. All else (buffers, temporaries, what views look into)
// is left alone. Operators of the thread gather what they use, and what they write is kept, so a tensor that
// merely looks like a parameter has the right values too.
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
  std::optional<at::ScalarType> dtype;  // of the parameters at the end; none: as they were built
  at::Device device = at::kCPU;         // of the parameters at the end; ranks exchange them there
  ShardHomeOptions home = {};           // where the shards are
  int64_t max_whole_bytes = 0;          // that stand whole, beside the newest tensor
  GatherPoolOptions pool = {};          // from the end on, until initialize()
  std::function<bool(const at::Tensor&)> stays_whole = {};  // of which parameters; null: of none
};

class Construction : public std::enable_shared_from_this<Construction> {
 public:
  /// Begins a construction on the calling thread. Collective where the shards go to a disk: throws IoError on
  /// all ranks where one has none, ConfigError for no buffers.
  Construction(ZeroGroups ranks, const ConstructionOptions& options);

  const ZeroGroups& ranks() const { return ranks_; }
  const ConstructionOptions& options() const { return options_; }
  bool is_of_this_thread() const { return std::this_thread::get_id() == thread_; }

  /// Partitions the oldest parameters until the limit is kept. Collective, like all calls below but
  /// note_birth().
  void make_room();
  /// Notes a tensor that may become a parameter.
  void note_birth(const at::Tensor& tensor);
  void make_whole(NewParameter& param);
  /// Partitions the tensor now, if it is a whole parameter of this construction.
  void partition_if_born_here(const at::Tensor& tensor);

  /// Ends the construction: partitions what is whole still and hands all parameters to a pool, over which
  /// they are used until initialize() takes them. Throws UsageError where a GatheredParameters holds one.
  void hand_over();
  /// Ends the construction where the parameters are known: all of `params` go to the pool, also those that do
  /// not require a gradient, share memory, or are on the meta device (NaN until they get values). Everything
  /// else is an ordinary tensor again.
  void hand_over(const std::vector<NamedTensor>& params);

 private:
  using WeakTensor = c10::weak_intrusive_ptr<c10::TensorImpl>;

  at::TensorOptions shard_options(const at::Tensor& param) const;
  /// Makes a place for a shard that does not lie on the device; null where it does.
  std::shared_ptr<Shard> make_place(const std::string& name, const at::Tensor& param);
  void partition(const at::Tensor& param);
  bool stays_whole(const at::Tensor& param) const {
    return options_.stays_whole && options_.stays_whole(param);
  }
  void warn_of_whole_parameters() const;
  /// The whole parameters that were never partitioned, the oldest first; forgets what died.
  std::vector<at::Tensor> whole_newborns();
  /// The parameters that were partitioned and live.
  std::vector<at::Tensor> partitioned() const;
  void keep_limit(int64_t max_whole_bytes, bool spare_newest);
  void give_back_all_but(const std::vector<NamedTensor>& kept);
  std::shared_ptr<GatherPool> make_pool() const;
  void hand_over(GatherPool& pool, const at::Tensor& tensor, const std::string& name) const;
  void hand_over_unset(GatherPool& pool, const at::Tensor& tensor, const std::string& name);

  const ZeroGroups ranks_;
  const ConstructionOptions options_;
  std::optional<ShardHome> home_;  // none: the shards lie on the device
  const std::thread::id thread_ = std::this_thread::get_id();
  std::vector<WeakTensor> newborns_;
  std::vector<WeakTensor> partitioned_;
  std::vector<std::weak_ptr<NewParameter>> whole_again_;
  int64_t whole_bytes_ = 0;  // at most: what was born since the last look counts, parameter or not
  int64_t num_params_ = 0;
  int64_t num_left_whole_ = 0;
};

}  // namespace deepspeed::zero
