// Means over ranks of what has the size of a group's flat space travel in 1 bit an element where that is
// worth it.
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

/// Matrices are compressed; biases and the weights of norms, which are little of what is sent, are averaged
/// as they are. Means of one group come one after the other.
class CompressedMeans : public optim::RankMean {
 public:
  /// `store` must outlive it. data: the ranks that average.
  CompressedMeans(const ParamStore& store, const comm::ProcessGroup& data);

  void mean(size_t group, const at::Tensor& values) const override { scaled_mean(group, values, {}); }
  void forget(size_t group) const override { groups_[group].compressed->reset(); }
  /// Takes a mean in which each matrix is multiplied by its number of `scaling`, [parameter], on the way and
  /// divided by it behind it; without numbers none is.
  void scaled_mean(size_t group, const at::Tensor& values, const std::vector<double>& scaling) const;

  /// Returns what compression has taken from earlier means, by name; shared, empty before the first.
  std::vector<std::pair<std::string, at::Tensor>> errors() const;
  /// Takes copies of errors() of a run on as many ranks. Returns whether they fit; where not, nothing is
  /// kept.
  bool load_errors(const std::vector<std::pair<std::string, at::Tensor>>& errors);
  /// Forgets them, on this rank; all ranks do so.
  void reset();
  /// Returns the bytes of errors that are kept.
  int64_t bytes() const;

 private:
  struct Place {
    size_t param;
    Interval in_flat;
  };
  /// Lists the parameters of a group that travel in one way, and where they lie.
  struct Parts {
    std::vector<Place> places;
    int64_t numel = 0;
    void add(const Place& place);
    at::Tensor collect(const at::Tensor& flat) const;
    void spread(const at::Tensor& values, const at::Tensor& flat) const;
    /// Multiplies each parameter's part, or divides it.
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
