// Defines groups of ranks by named axes over a world. This is pure data, without communication.
#pragma once

#include <string>
#include <vector>

#include "deepspeed/base/export.h"

namespace deepspeed::comm {

struct MeshAxis {
  std::string name;  // "data", "pipe", "model", ...
  int size = 1;
};

/// Arranges ranks along the axes in row-major order. The last axis varies fastest, so its neighbours are
/// consecutive ranks, which usually share a machine.
class DEEPSPEED_API Topology {
 public:
  /// Throws UsageError for no axes, an empty or repeated name, or a size below 1.
  explicit Topology(std::vector<MeshAxis> axes);

  const std::vector<MeshAxis>& axes() const { return axes_; }
  int world_size() const;
  /// Returns the size of an axis. Throws UsageError, naming the known axes, if it does not exist.
  int axis_size(const std::string& axis) const;

  /// Returns the position of a rank along every axis.
  std::vector<int> coordinates(int rank) const;
  int coordinate(int rank, const std::string& axis) const;
  int rank_at(const std::vector<int>& coordinates) const;

  /// Returns the groups along these axes: ranks that differ only on them, ascending. The groups are ordered
  /// by lowest rank.
  std::vector<std::vector<int>> groups(const std::vector<std::string>& axes) const;
  /// Returns the group in groups(axes) that contains `rank`.
  std::vector<int> group_of(int rank, const std::vector<std::string>& axes) const;

 private:
  size_t index_of(const std::string& axis) const;
  void check_rank(int rank) const;
  std::vector<MeshAxis> axes_;
};

}  // namespace deepspeed::comm
