// A point's number is read as digits: each hyperparameter takes the remainder by its number of points, the
// last name first. So no list of all points is made.
#include "deepspeed/trial/experiment/grid.h"

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

namespace deepspeed::trial {
namespace {

int64_t points_of(const Constant&, int64_t) { return 1; }
int64_t points_of(const IntRange& range, int64_t) {
  return std::min(range.count.value_or(1), range.maximum - range.minimum + 1);
}
int64_t points_of(const DoubleRange& range, int64_t) { return range.count.value_or(1); }
int64_t points_of(const LogRange& range, int64_t) { return range.count.value_or(1); }
int64_t points_of(const Choice& choice, int64_t) { return static_cast<int64_t>(choice.values.size()); }
int64_t points_of(const Space& space, int64_t most) { return grid_size(space, most); }

/// Returns point `index` of `count` evenly spaced ones. One alone is in the middle.
double spaced(double minimum, double maximum, int64_t index, int64_t count) {
  if (count == 1) return minimum / 2 + maximum / 2;
  if (index == count - 1) return maximum;
  return minimum + static_cast<double>(index) * (maximum - minimum) / static_cast<double>(count - 1);
}

Json value_at(const Constant& constant, int64_t) { return constant.value; }
Json value_at(const IntRange& range, int64_t index) {
  const int64_t count = points_of(range, 0);
  const auto minimum = static_cast<double>(range.minimum), maximum = static_cast<double>(range.maximum);
  return static_cast<int64_t>(std::llround(spaced(minimum, maximum, index, count)));
}
Json value_at(const DoubleRange& range, int64_t index) {
  return spaced(range.minimum, range.maximum, index, range.count.value_or(1));
}
Json value_at(const LogRange& range, int64_t index) {
  return std::pow(range.base, spaced(range.minimum, range.maximum, index, range.count.value_or(1)));
}
Json value_at(const Choice& choice, int64_t index) { return choice.values.at(static_cast<size_t>(index)); }
Json value_at(const Space& space, int64_t index) { return grid_point(space, index); }

int64_t points_of_one(const Hyperparameter& hyperparameter, int64_t most) {
  return std::visit([&](const auto& domain) { return points_of(domain, most); }, hyperparameter.domain);
}

}  // namespace

int64_t grid_size(const Space& space, int64_t most) {
  int64_t size = 1;
  for (const Hyperparameter& hyperparameter : space) {
    const int64_t points = points_of_one(hyperparameter, most);
    if (points > most / size) return most + 1;
    size *= points;
  }
  return size;
}

Json grid_point(const Space& space, int64_t point) {
  std::vector<int64_t> digits(space.size());
  for (size_t i = space.size(); i-- > 0;) {
    const int64_t points = points_of_one(space[i], kMaxWhole);
    digits[i] = point % points;
    point /= points;
  }
  Json values = Json::object();
  for (size_t i = 0; i < space.size(); ++i) {
    values[space[i].name] =
        std::visit([&](const auto& domain) { return value_at(domain, digits[i]); }, space[i].domain);
  }
  return values;
}

}  // namespace deepspeed::trial
