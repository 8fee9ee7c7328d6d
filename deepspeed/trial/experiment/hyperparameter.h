// The space of hyperparameters that a search draws from.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "deepspeed/base/json.h"

namespace deepspeed::trial {

/// Limits whole numbers, positive and negative: a double holds all of them exactly.
inline constexpr int64_t kMaxWhole = int64_t{1} << 53;

/// Has one value, in all trials.
struct Constant {
  Json value;
};

/// Takes whole numbers from `minimum` to `maximum`, both included.
struct IntRange {
  int64_t minimum = 0;
  int64_t maximum = 0;
  std::optional<int64_t> count;  ///< points on a grid
};

/// Takes numbers from `minimum` to `maximum`.
struct DoubleRange {
  double minimum = 0;
  double maximum = 0;
  std::optional<int64_t> count;  ///< points on a grid, evenly spaced
};

/// Takes `base` to the power of a number from `minimum` to `maximum`.
struct LogRange {
  double base = 10;
  double minimum = 0;            ///< of the exponent
  double maximum = 0;            ///< of the exponent
  std::optional<int64_t> count;  ///< points on a grid, with evenly spaced exponents
};

/// Takes one of some values.
struct Choice {
  std::vector<Json> values;
};

struct Hyperparameter;

/// Holds hyperparameters, in the order of their names.
using Space = std::vector<Hyperparameter>;

/// Is one named part of a space. A space inside it is a map of further hyperparameters.
struct Hyperparameter {
  std::string name;
  std::variant<Constant, IntRange, DoubleRange, LogRange, Choice, Space> domain;
};

/// Describes a space in one way, whatever the YAML's spelling and order, for digests.
Json json_of(const Space& space);

}  // namespace deepspeed::trial
