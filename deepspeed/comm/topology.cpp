#include "deepspeed/comm/topology.h"

#include <map>

#include "deepspeed/base/error.h"

namespace deepspeed::comm {

Topology::Topology(std::vector<MeshAxis> axes) : axes_(std::move(axes)) {
  if (axes_.empty()) raise<UsageError>("no axes were given, expected one or more");
  for (size_t i = 0; i < axes_.size(); ++i) {
    const auto& axis = axes_[i];
    if (axis.name.empty() || axis.size < 1) {
      raise<UsageError>("axis ", i, " is '", axis.name, "' of size ", axis.size,
                        ", expected a name and a size of 1 or more");
    }
    for (size_t j = 0; j < i; ++j) {
      if (axes_[j].name == axis.name) raise<UsageError>("the axis '", axis.name, "' appears twice");
    }
  }
}

int Topology::world_size() const {
  int size = 1;
  for (const auto& axis : axes_) size *= axis.size;
  return size;
}

size_t Topology::index_of(const std::string& axis) const {
  std::string known;
  for (size_t i = 0; i < axes_.size(); ++i) {
    if (axes_[i].name == axis) return i;
    known += (i == 0 ? "'" : ", '") + axes_[i].name + "'";
  }
  raise<UsageError>("there is no axis '", axis, "', expected one of ", known);
}

int Topology::axis_size(const std::string& axis) const { return axes_[index_of(axis)].size; }

void Topology::check_rank(int rank) const {
  if (rank < 0 || rank >= world_size()) {
    raise<UsageError>("the rank is ", rank, ", expected 0 to ", world_size() - 1);
  }
}

std::vector<int> Topology::coordinates(int rank) const {
  check_rank(rank);
  std::vector<int> result(axes_.size());
  for (size_t i = axes_.size(); i-- > 0;) {
    result[i] = rank % axes_[i].size;
    rank /= axes_[i].size;
  }
  return result;
}

int Topology::coordinate(int rank, const std::string& axis) const {
  return coordinates(rank)[index_of(axis)];
}

int Topology::rank_at(const std::vector<int>& coordinates) const {
  if (coordinates.size() != axes_.size()) {
    raise<UsageError>(coordinates.size(), " coordinates, expected one for each of ", axes_.size(), " axes");
  }
  int rank = 0;
  for (size_t i = 0; i < axes_.size(); ++i) {
    if (coordinates[i] < 0 || coordinates[i] >= axes_[i].size) {
      raise<UsageError>("the coordinate on axis '", axes_[i].name, "' is ", coordinates[i],
                        ", expected 0 to ", axes_[i].size - 1);
    }
    rank = rank * axes_[i].size + coordinates[i];
  }
  return rank;
}

std::vector<std::vector<int>> Topology::groups(const std::vector<std::string>& axes) const {
  std::vector<size_t> varying;
  for (const auto& axis : axes) varying.push_back(index_of(axis));
  // A group is identified by its first rank, whose varying coordinates are zero.
  std::map<int, std::vector<int>> by_first;
  for (int rank = 0; rank < world_size(); ++rank) {
    auto place = coordinates(rank);
    for (const auto axis : varying) place[axis] = 0;
    by_first[rank_at(place)].push_back(rank);
  }
  std::vector<std::vector<int>> result;
  for (auto& [first, ranks] : by_first) result.push_back(std::move(ranks));
  return result;
}

std::vector<int> Topology::group_of(int rank, const std::vector<std::string>& axes) const {
  check_rank(rank);
  for (auto& group : groups(axes)) {
    for (const int member : group) {
      if (member == rank) return group;
    }
  }
  raise<UsageError>("rank ", rank, " is in no group");
}

}  // namespace deepspeed::comm
