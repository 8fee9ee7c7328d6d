#include "deepspeed/zero/update/cut_of_store.h"

#include <utility>

#include <ATen/ops/empty.h>

namespace deepspeed::zero {
namespace {

class CutByPartitions : public CutOfStore {
 public:
  CutByPartitions(const ParamStore& store, size_t group, comm::ProcessGroup ranks)
      : CutOfStore(store, std::move(ranks)),
        layout_(store.groups()[group].layout),
        dtype_(store.master_dtype(group)) {
    const StoredGroup& stored = store.groups()[group];
    for (const PlacedParam& placed : layout_.params()) {
      const int64_t partition = layout_.partition_numel();
      const Interval place = placed.in_flat;
      if (place.empty() || place.begin / partition == (place.end - 1) / partition) continue;
      cut_.push_back({static_cast<int64_t>(placed.index), stored.params[placed.index].tensor.sizes().vec()});
    }
  }

  // All parts travel before any is changed, so that no rank waits for another's arithmetic.
  std::vector<at::Tensor> change_whole(const std::vector<Part>& parts, const Change& change) const override {
    std::vector<at::Tensor> results;
    for (const Part& part : parts) results.push_back(join(place_of(part.index), part.values));
    for (size_t i = 0; i < parts.size(); ++i) {
      if (!results[i].defined()) continue;
      const Interval place = place_of(parts[i].index);
      const Interval own = intersect(layout_.partition(ranks_.rank()), place);
      results[i] = change(parts[i].index, results[i])
                       .narrow(0, own.begin - place.begin, own.numel())
                       .to(parts[i].values.device());
    }
    return results;
  }

 private:
  Interval place_of(size_t index) const {
    return layout_.place(static_cast<size_t>(cut_.at(index).param_index));
  }

  // Each rank sends its part to all. Returns an undefined tensor on ranks without a part.
  at::Tensor join(const Interval& place, const at::Tensor& part) const {
    at::Tensor whole = at::empty({place.numel()}, store_.options().dtype(dtype_));
    std::vector<comm::Work> works;
    for (int rank = 0; rank < ranks_.size(); ++rank) {
      const Interval common = intersect(layout_.partition(rank), place);
      if (common.empty()) continue;
      const at::Tensor theirs = whole.narrow(0, common.begin - place.begin, common.numel());
      if (rank == ranks_.rank()) theirs.copy_(part);
      works.push_back(ranks_.start_broadcast(theirs, rank));
    }
    for (comm::Work& work : works) work.wait();
    return part.defined() ? whole : at::Tensor();
  }

  const FlatLayout& layout_;
  const at::ScalarType dtype_;
};

}  // namespace

std::unique_ptr<optim::CutParameters> make_cut_parameters(const ParamStore& store, size_t group,
                                                          comm::ProcessGroup ranks) {
  return std::make_unique<CutByPartitions>(store, group, std::move(ranks));
}

// The values may be on another device than the one on which ranks exchange tensors.
void CutOfStore::reduce(const at::Tensor& values, comm::ReduceOp op) const {
  if (values.device() == device()) return ranks_.all_reduce(values, op);
  const at::Tensor there = values.to(device());
  ranks_.all_reduce(there, op);
  values.copy_(there);
}

}  // namespace deepspeed::zero
