#include "deepspeed/zero/cut_parameters.h"

#include <utility>

#include <ATen/ops/empty.h>

namespace deepspeed::zero {
namespace {

class CutByPartitions : public optim::CutParameters {
 public:
  CutByPartitions(const StoredGroup& stored, comm::ProcessGroup group)
      : stored_(stored), group_(std::move(group)) {
    for (const PlacedParam& placed : stored.layout.params()) {
      const int64_t partition = stored.layout.partition_numel();
      const Interval place = placed.in_flat;
      if (place.empty() || place.begin / partition == (place.end - 1) / partition) continue;
      cut_.push_back({static_cast<int64_t>(placed.index), stored.params[placed.index].tensor.sizes().vec()});
    }
  }

  const std::vector<optim::CutParameter>& all() const override { return cut_; }

  void sum(const at::Tensor& values) const override { group_.all_reduce(values); }

  // Each rank sends its part to all: only two of them, as a rule, have one.
  at::Tensor join(size_t index, const at::Tensor& part) const override {
    const Interval place = stored_.layout.place(static_cast<size_t>(cut_.at(index).param_index));
    at::Tensor whole = at::empty({place.numel()}, stored_.flat.options().dtype(at::kFloat));
    std::vector<comm::Work> works;
    for (int rank = 0; rank < group_.size(); ++rank) {
      const Interval common = intersect(stored_.layout.partition(rank), place);
      if (common.empty()) continue;
      const at::Tensor theirs = whole.narrow(0, common.begin - place.begin, common.numel());
      if (rank == group_.rank()) theirs.copy_(part);
      works.push_back(group_.start_broadcast(theirs, rank));
    }
    for (comm::Work& work : works) work.wait();
    return part.defined() ? whole : at::Tensor();
  }

 private:
  const StoredGroup& stored_;
  comm::ProcessGroup group_;
  std::vector<optim::CutParameter> cut_;
};

}  // namespace

std::unique_ptr<optim::CutParameters> make_cut_parameters(const StoredGroup& stored,
                                                          comm::ProcessGroup group) {
  return std::make_unique<CutByPartitions>(stored, std::move(group));
}

}  // namespace deepspeed::zero
