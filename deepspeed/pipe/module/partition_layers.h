// Shares the layers of a model out among stages, by DeepSpeed's rules. All of it is pure: layers are names,
// numbers of parameters and times.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "deepspeed/base/export.h"

namespace deepspeed {

/// The boundaries of parts: part i has the items from parts[i] to before parts[i + 1]. There is one more of
/// them than parts; the first is 0 and the last the number of items.
using Parts = std::vector<int>;

/// Cuts items into parts of equal size; the first parts get one more where it does not come out even. With
/// fewer items than parts, the last parts are empty. Throws UsageError for less than one part or a negative
/// count.
DEEPSPEED_API Parts partition_uniform(int num_items, int num_parts);

/// Cuts items into parts whose sums of weights differ as little as can be: the largest sum less the smallest,
/// found by dynamic programming in O(n^2 * parts). Of equal cuts the one with the most items before the last
/// part is taken, and so on to the front. With as many parts as items, or more, it is partition_uniform.
/// Source of the rule: DeepSpeed 0.19.6, runtime/utils.py. Throws UsageError as partition_uniform does, and
/// for weights that are negative or not finite.
DEEPSPEED_API Parts partition_balanced(const std::vector<double>& weights, int num_parts);

/// What a layer is to the partition.
struct LayerCost {
  std::string class_name;  // of the module, or the name of the function
  int64_t parameters = 0;  // elements that are trained
  double seconds = 0;      // forward and backward as measured; used by "profile" alone
};

/// Shares layers out by `method`, in any case of letters:
///   "uniform"      equally many layers a stage;
///   "parameters"   equally many trained elements;
///   "type:REGEX"   equally many layers whose class name holds a match, letters of any case;
///   "profile"      equal measured times.
/// Throws UsageError naming partition_method and the way out for an unknown method, a regular expression that
/// is broken or matches no layer, "profile" without times, and a stage that would have no layers.
DEEPSPEED_API Parts partition_layers(const std::vector<LayerCost>& layers, int num_stages,
                                     const std::string& method);

}  // namespace deepspeed
