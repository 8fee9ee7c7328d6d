#include "deepspeed/zero/update/cut_shards.h"

#include <algorithm>
#include <utility>

#include <ATen/ops/empty_like.h>
#include <ATen/ops/zeros.h>

#include "deepspeed/zero/update/cut_of_store.h"

namespace deepspeed::zero {
namespace {

class CutShards : public CutOfStore {
 public:
  CutShards(const ParamStore& store, size_t group, const Interval& sub_group, comm::ProcessGroup ranks)
      : CutOfStore(store, std::move(ranks)),
        layout_(*store.shards(group)),
        dtype_(store.master_dtype(group)) {
    const StoredGroup& stored = store.groups()[group];
    for (size_t param = 0; param < stored.params.size(); ++param) {
      if (!intersect(layout_.place(param), sub_group).empty())
        cut_.push_back({static_cast<int64_t>(param), stored.params[param].tensor.sizes().vec()});
    }
  }

  std::vector<at::Tensor> change_whole(const std::vector<Part>& parts, const Change& change) const override {
    std::vector<at::Tensor> results(parts.size());
    const auto round = static_cast<size_t>(ranks_.size());
    for (size_t first = 0; first < parts.size(); first += round) {
      const size_t end = std::min(first + round, parts.size());
      change_round({parts.begin() + int64_t(first), parts.begin() + int64_t(end)}, change, &results[first]);
    }
    return results;
  }

 private:
  int64_t shard_numel(const Part& part) const { return layout_.shard_numel(param_of(part)); }
  size_t param_of(const Part& part) const { return static_cast<size_t>(cut_.at(part.index).param_index); }

  /// Changes at most one parameter per rank, which that rank makes whole. Shards are sent padded to the
  /// longest one.
  void change_round(const std::vector<Part>& parts, const Change& change, at::Tensor* results) const {
    int64_t longest = 0;
    for (const Part& part : parts) longest = std::max(longest, shard_numel(part));
    const at::Tensor shards =
        at::zeros({ranks_.size(), longest}, store_.options().dtype(dtype_));  // (parameter, elements)
    for (size_t i = 0; i < parts.size(); ++i) {
      const at::Tensor& values = parts[i].values;
      if (values.defined()) shards[int64_t(i)].narrow(0, 0, values.numel()).copy_(values);
    }
    const at::Tensor of_ranks = exchange(shards);  // (rank, elements) of this rank's parameter
    const auto mine = static_cast<size_t>(ranks_.rank());
    if (mine < parts.size()) change_one(parts[mine], change, of_ranks);
    const at::Tensor changed = exchange(of_ranks);
    for (size_t i = 0; i < parts.size(); ++i) {
      const at::Tensor& values = parts[i].values;
      if (values.defined()) results[i] = changed[int64_t(i)].narrow(0, 0, values.numel()).to(values.device());
    }
  }

  /// Changes one parameter in place. of_ranks: (rank, elements), each rank's shard of it.
  void change_one(const Part& part, const Change& change, const at::Tensor& of_ranks) const {
    const int64_t numel = layout_.numel(param_of(part));
    const at::Tensor padded = of_ranks.narrow(1, 0, shard_numel(part)).reshape({-1}).contiguous();
    const at::Tensor changed = change(part.index, padded.narrow(0, 0, numel));
    padded.narrow(0, 0, numel).copy_(changed);
    of_ranks.narrow(1, 0, shard_numel(part)).copy_(padded.view({ranks_.size(), shard_numel(part)}));
  }

  /// Sends row r to rank r. Returns the received rows, row r from rank r.
  at::Tensor exchange(const at::Tensor& rows) const {
    if (ranks_.size() == 1) return rows;
    const at::Tensor received = at::empty_like(rows);
    ranks_.all_to_all(received, rows);
    return received;
  }

  const ShardLayout& layout_;
  const at::ScalarType dtype_;
};

}  // namespace

std::unique_ptr<optim::CutParameters> make_cut_shards(const ParamStore& store, size_t group,
                                                      const Interval& sub_group, comm::ProcessGroup ranks) {
  return std::make_unique<CutShards>(store, group, sub_group, std::move(ranks));
}

}  // namespace deepspeed::zero
