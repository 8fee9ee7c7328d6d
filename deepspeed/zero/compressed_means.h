// Means over ranks of tensors as large as a group's flat space, sent as 1 bit an element.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>

#include "deepspeed/comm/compressed/compressed_all_reduce.h"
#include "deepspeed/comm/group/process_group.h"
#include "deepspeed/optim/slices/other_ranks.h"
#include "deepspeed/zero/params/param_store.h"

namespace deepspeed::zero {

/// Averages matrices in compressed form. Biases and norm weights, a small share of the data, are averaged
/// uncompressed. Two means of one group must not run at the same time.
class CompressedMeans : public optim::RankMean {
 public:
  /// Prepares the means over the ranks `data`. `store` must outlive this object.
  CompressedMeans(const ParamStore& store, const comm::ProcessGroup& data);

  void mean(size_t group, const at::Tensor& values) const override { scaled_mean(group, values, {}); }
  void forget(size_t group) const override { groups_[group].compressed->reset(); }
  /// Replaces `values`, in the group's flat order, by their mean over the ranks. Each matrix is multiplied by
  /// scaling[parameter] before it is sent and divided by it afterwards. An empty `scaling` scales nothing.
  void scaled_mean(size_t group, const at::Tensor& values, const std::vector<double>& scaling) const;

  /// Returns the errors of earlier compressions, by name. Tensors are shared; empty before the first mean.
  std::vector<std::pair<std::string, at::Tensor>> errors() const;
  /// Loads copies of errors() from a run of equally many ranks. Returns whether they fit; if not, no errors
  /// are kept.
  bool load_errors(const std::vector<std::pair<std::string, at::Tensor>>& errors);
  /// Forgets this rank's errors. All ranks must call it.
  void reset();
  /// Returns the bytes of the kept errors.
  int64_t bytes() const;

 private:
  struct Place {
    size_t param;
    Interval in_flat;
  };
  /// Lists parameters sent in the same form, with their places in the group's flat space.
  struct Parts {
    std::vector<Place> places;
    int64_t numel = 0;
    void add(const Place& place);
    at::Tensor collect(const at::Tensor& flat) const;
    void spread(const at::Tensor& values, const at::Tensor& flat) const;
    /// Multiplies each parameter's elements in `values` (from collect()) by scaling[parameter], or divides
    /// them by it.
    void scale(const at::Tensor& values, const std::vector<double>& scaling, bool divides) const;
  };
  struct Group {
    Parts matrices, rest;
    std::unique_ptr<comm::CompressedAllReduce> compressed;
  };

  const comm::ProcessGroup& data_;
  std::vector<Group> groups_;
};

}  // namespace deepspeed::zero
