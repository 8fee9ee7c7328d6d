// A mesh holds the groups of a world along named axes.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "deepspeed/base/export.h"
#include "deepspeed/comm/init.h"
#include "deepspeed/comm/topology.h"

namespace deepspeed::comm {

/// Lays ranks out: `Mesh mesh(world, {{"pipe", 2}, {"data", 4}}); mesh.group("data").all_reduce(t);`
class DEEPSPEED_API Mesh {
 public:
  /// Makes the groups along every single axis. Collective: every rank calls it with the same axes. Throws
  /// UsageError where the product of the sizes is not the size of the world.
  Mesh(const World& world, std::vector<MeshAxis> axes);
  /// Makes the groups over `all`, a group of all ranks of the world, which serves as the group of an axis
  /// that all of them lie on, so that no other is made.
  Mesh(const World& world, const ProcessGroup& all, std::vector<MeshAxis> axes);

  const Topology& topology() const { return topology_; }
  /// Returns this rank's group along the axis: the ranks that differ from it on that axis alone.
  const ProcessGroup& group(const std::string& axis) const;
  /// Returns this rank's position on the axis, its rank in group(axis).
  int coordinate(const std::string& axis) const;

  /// Makes this rank's group along several axes together. Collective.
  ProcessGroup new_group(const std::vector<std::string>& axes) const;

 private:
  World world_;
  Topology topology_;
  std::map<std::string, ProcessGroup> groups_;
};

}  // namespace deepspeed::comm
