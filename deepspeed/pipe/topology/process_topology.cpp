#include "deepspeed/pipe/topology/process_topology.h"

#include <algorithm>

#include "deepspeed/base/error.h"

namespace deepspeed {
namespace {

std::vector<comm::MeshAxis> axes_of(const std::vector<std::string>& names, const std::vector<int>& sizes) {
  if (names.size() != sizes.size()) {
    raise<UsageError>(names.size(), " axes and ", sizes.size(), " dims, expected a size for each axis");
  }
  std::vector<comm::MeshAxis> axes;
  for (size_t i = 0; i < names.size(); ++i) axes.push_back({names[i], sizes[i]});
  return axes;
}

std::string two_digits(int number) { return (number < 10 ? "0" : "") + std::to_string(number); }

}  // namespace

ProcessTopology::ProcessTopology(const std::vector<std::string>& axes, const std::vector<int>& dims)
    : layout_(axes_of(axes, dims)) {}

int ProcessTopology::get_rank(const ProcessCoord& coord) const {
  std::vector<int> coordinates;
  for (const auto& axis : layout_.axes()) {
    const auto found = coord.find(axis.name);
    if (found == coord.end()) {
      raise<UsageError>("the coordinate on axis '", axis.name,
                        "' is missing, expected one for each axis; filter_match() takes a part of them");
    }
    coordinates.push_back(found->second);
  }
  for (const auto& [axis, position] : coord) layout_.axis_size(axis);  // throws for an unknown axis
  return layout_.rank_at(coordinates);
}

ProcessCoord ProcessTopology::get_coord(int rank) const {
  const auto coordinates = layout_.coordinates(rank);
  ProcessCoord coord;
  for (size_t i = 0; i < coordinates.size(); ++i) coord[layout_.axes()[i].name] = coordinates[i];
  return coord;
}

std::vector<std::string> ProcessTopology::get_axis_names() const {
  std::vector<std::string> names;
  for (const auto& axis : layout_.axes()) names.push_back(axis.name);
  return names;
}

int ProcessTopology::get_dim(const std::string& axis) const {
  for (const auto& known : layout_.axes()) {
    if (known.name == axis) return known.size;
  }
  return 0;
}

std::string ProcessTopology::get_rank_repr(int rank, const std::vector<std::string>& omit_axes,
                                           const std::string& inner_sep, const std::string& outer_sep) const {
  const auto coord = get_coord(rank);
  std::string text;
  for (const auto& name : get_axis_names()) {
    if (std::find(omit_axes.begin(), omit_axes.end(), name) != omit_axes.end()) continue;
    text += (text.empty() ? "" : outer_sep) + name + inner_sep + two_digits(coord.at(name));
  }
  return text;
}

std::vector<std::vector<int>> ProcessTopology::get_axis_comm_lists(const std::string& axis) const {
  if (!has_axis(axis)) return {};
  return layout_.groups({axis});
}

std::vector<int> ProcessTopology::filter_match(const ProcessCoord& filter) const {
  for (const auto& [axis, position] : filter) layout_.axis_size(axis);  // throws for an unknown axis
  std::vector<int> ranks;
  for (int rank = 0; rank < world_size(); ++rank) {
    const auto coord = get_coord(rank);
    const bool matches = std::all_of(filter.begin(), filter.end(), [&](const auto& wanted) {
      return coord.at(wanted.first) == wanted.second;
    });
    if (matches) ranks.push_back(rank);
  }
  return ranks;
}

}  // namespace deepspeed
