// DeepSpeed's interface to a layout of ranks over named axes.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "deepspeed/base/export.h"
#include "deepspeed/comm/topology.h"

namespace deepspeed {

/// Maps the names of axes to a rank's coordinates.
using ProcessCoord = std::map<std::string, int>;

/// Lays ranks out over axes in row-major order: the last axis varies fastest. A missing axis has size 0 and
/// no groups, so code for many kinds of parallelism can ask for it.
class DEEPSPEED_API ProcessTopology {
 public:
  /// Throws UsageError for lists of different lengths, no axes, repeated names or sizes below 1.
  ProcessTopology(const std::vector<std::string>& axes, const std::vector<int>& dims);

  /// Returns the rank at a position, which must have each axis once. Throws UsageError for a missing or
  /// unknown axis, and for a coordinate outside its axis.
  int get_rank(const ProcessCoord& coord) const;
  /// Returns the position of a rank. Throws UsageError for a rank outside of the topology.
  ProcessCoord get_coord(int rank) const;
  std::vector<std::string> get_axis_names() const;
  /// Returns the size of an axis; 0 if there is none of that name.
  int get_dim(const std::string& axis) const;
  /// Names a rank by its coordinates on axes outside `omit_axes`, for example "model_00", as in checkpoint
  /// files. `inner_sep` precedes a coordinate, `outer_sep` separates axes.
  std::string get_rank_repr(int rank, const std::vector<std::string>& omit_axes = {"data", "pipe"},
                            const std::string& inner_sep = "_", const std::string& outer_sep = "-") const;
  /// Returns the groups of ranks that differ only on this axis; empty without the axis.
  std::vector<std::vector<int>> get_axis_comm_lists(const std::string& axis) const;
  /// Returns the ranks whose coordinates match `filter`, ascending. Throws UsageError for an unknown axis.
  std::vector<int> filter_match(const ProcessCoord& filter) const;
  /// Returns the ranks at position `index` of an axis, ascending. Throws UsageError for an unknown axis.
  std::vector<int> get_axis_list(const std::string& axis, int index) const {
    return filter_match({{axis, index}});
  }
  int world_size() const { return layout_.world_size(); }

  /// Returns the axes in the communication layer's form.
  const comm::Topology& layout() const { return layout_; }

 private:
  bool has_axis(const std::string& axis) const { return get_dim(axis) > 0; }
  comm::Topology layout_;
};

/// Lays out a pipeline whose stages are each trained by several ranks. These ranks are neighbours and usually
/// share a machine, since gradients are the larger traffic.
class DEEPSPEED_API PipeDataParallelTopology : public ProcessTopology {
 public:
  PipeDataParallelTopology(int num_pp, int num_dp) : ProcessTopology({"pipe", "data"}, {num_pp, num_dp}) {}
};

/// Lays out pipelines with layers cut over model-parallel ranks, and data parallelism.
class DEEPSPEED_API PipeModelDataParallelTopology : public ProcessTopology {
 public:
  PipeModelDataParallelTopology(int num_pp, int num_mp, int num_dp)
      : ProcessTopology({"pipe", "data", "model"}, {num_pp, num_dp, num_mp}) {}
};

}  // namespace deepspeed
