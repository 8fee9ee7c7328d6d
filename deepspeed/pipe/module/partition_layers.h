// Divides a model's layers among stages, by DeepSpeed's rules. All functions are pure: they see layers as
// names, numbers of parameters and times.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "deepspeed/base/export.h"

namespace deepspeed {

/// Holds the boundaries of parts. Part i has the items from parts[i] up to parts[i + 1], exclusive. There is
/// one more boundary than parts; the first is 0 and the last is the number of items.
using Parts = std::vector<int>;

/// Cuts items into parts of equal size. If they do not divide evenly, the first parts get one more. With
/// fewer items than parts, the last parts are empty. Throws UsageError for less than one part or a negative
/// count.
DEEPSPEED_API Parts partition_uniform(int num_items, int num_parts);

/// Cuts items into parts whose sums of weights differ as little as possible. The largest minus the smallest
/// sum is minimized by dynamic programming in O(n^2 * parts). Among equally good cuts, the one with the
/// smallest last part is taken, then the smallest part before it, and so on. With at most as many items as
/// parts, the result is that of partition_uniform. Source of the rule: DeepSpeed 0.19.6, runtime/utils.py.
/// Throws UsageError as partition_uniform does, and for weights that are negative or not finite.
DEEPSPEED_API Parts partition_balanced(const std::vector<double>& weights, int num_parts);

/// Describes a layer to partition_layers().
struct LayerCost {
  std::string class_name;  // the module's class, or the function's name
  int64_t parameters = 0;  // trained elements
  double seconds = 0;      // measured forward and backward; used only by "profile"
};

/// Divides layers among stages by `method`, whose case does not matter.
///   "uniform"      equally many layers per stage;
///   "parameters"   equally many trained elements;
///   "type:REGEX"   equally many layers whose class name matches, case ignored;
///   "profile"      equal measured times.
/// Throws UsageError naming partition_method and the way out for: an unknown method, a regular expression
/// that is broken or matches no layer, "profile" without times, and a stage that would have no layers.
DEEPSPEED_API Parts partition_layers(const std::vector<LayerCost>& layers, int num_stages,
                                     const std::string& method);

}  // namespace deepspeed
