#include "deepspeed/comm/mesh.h"

#include "deepspeed/base/error.h"

namespace deepspeed::comm {

Mesh::Mesh(const World& world, std::vector<MeshAxis> axes) : Mesh(world, ProcessGroup(), std::move(axes)) {}

Mesh::Mesh(const World& world, const ProcessGroup& all, std::vector<MeshAxis> axes)
    : world_(world), topology_(std::move(axes)) {
  if (topology_.world_size() != world_.size()) {
    std::string product;
    for (const auto& axis : topology_.axes()) {
      product += message(product.empty() ? "" : " x ", axis.name, " ", axis.size);
    }
    raise<UsageError>("the axes ", product, " make ", topology_.world_size(), " ranks, expected the ",
                      world_.size(), " of the world");
  }
  for (const auto& axis : topology_.axes()) {
    const bool has_all = all && axis.size == world_.size();
    groups_[axis.name] = has_all ? all : new_group({axis.name});
  }
}

const ProcessGroup& Mesh::group(const std::string& axis) const {
  topology_.axis_size(axis);  // throws where there is no such axis
  return groups_.at(axis);
}

int Mesh::coordinate(const std::string& axis) const { return topology_.coordinate(world_.rank(), axis); }

ProcessGroup Mesh::new_group(const std::vector<std::string>& axes) const {
  std::string name;
  for (const auto& axis : axes) name += (name.empty() ? "" : "+") + axis;
  ProcessGroup own;
  // Every rank names all groups, in the same order, as World::new_group() asks.
  for (const auto& ranks : topology_.groups(axes)) {
    if (const auto group = world_.new_group(ranks, name)) own = group;
  }
  return own;
}

}  // namespace deepspeed::comm
