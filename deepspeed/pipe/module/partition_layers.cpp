#include "deepspeed/pipe/module/partition_layers.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <numeric>
#include <regex>

#include "deepspeed/base/error.h"
#include "deepspeed/base/text.h"

namespace deepspeed {
namespace {

constexpr double kUnbounded = std::numeric_limits<double>::infinity();

void check_counts(int num_items, int num_parts) {
  if (num_parts < 1) raise<UsageError>("num_parts is ", num_parts, ", expected 1 or more");
  if (num_items < 0) raise<UsageError>("num_items is ", num_items, ", expected 0 or more");
}

void check_weights(const std::vector<double>& weights) {
  for (size_t i = 0; i < weights.size(); ++i) {
    if (std::isfinite(weights[i]) && weights[i] >= 0) continue;
    raise<UsageError>("weight ", i, " is ", weights[i], ", expected a finite number of at least 0");
  }
}

/// Describes the cut of the first i items whose parts' weights have the least spread.
struct BestCut {
  double largest = kUnbounded;
  double smallest = kUnbounded;
  double spread = kUnbounded;
  int last_begin = 0;  // the begin of the last part
};

/// Holds the best cuts of the first i items into one number of parts, for each i.
using BestCuts = std::vector<BestCut>;

/// Returns the best cuts into `parts` parts, given those into one part fewer. sums[i]: of the first i
/// weights. With equal spreads a later begin of the last part wins.
BestCuts add_part(const BestCuts& before, const std::vector<double>& sums, size_t parts) {
  BestCuts result(before.size());
  for (size_t end = parts; end < before.size(); ++end) {
    BestCut& best = result[end];
    for (size_t begin = 0; begin < end; ++begin) {
      const double sum = sums[end] - sums[begin];
      const double largest = std::max(before[begin].largest, sum);
      const double smallest = std::min(before[begin].smallest, sum);
      if (largest - smallest > best.spread) continue;
      best = {largest, smallest, largest - smallest, static_cast<int>(begin)};
    }
  }
  return result;
}

std::regex regex_of(const std::string& method) {
  try {
    return std::regex(method.substr(method.find(':') + 1), std::regex::ECMAScript | std::regex::icase);
  } catch (const std::regex_error& error) {
    raise<UsageError>("partition_method '", method, "' has a broken regular expression (", error.what(),
                      "), expected one of ECMAScript, for example 'type:transformer'");
  }
}

std::string class_names(const std::vector<LayerCost>& layers) {
  std::vector<std::string> names;
  for (const auto& layer : layers) {
    if (std::find(names.begin(), names.end(), layer.class_name) == names.end())
      names.push_back(layer.class_name);
  }
  std::string text;
  for (const auto& name : names) text += (text.empty() ? "'" : ", '") + name + "'";
  return text;
}

Parts cut_by_type(const std::vector<LayerCost>& layers, const std::string& method, int num_stages) {
  const auto regex = regex_of(method);
  std::vector<double> weights;
  for (const auto& layer : layers) weights.push_back(std::regex_search(layer.class_name, regex) ? 1 : 0);
  if (std::find(weights.begin(), weights.end(), 1.0) == weights.end()) {
    raise<UsageError>("partition_method '", method, "' matches no layer, expected a match in one or more of ",
                      class_names(layers));
  }
  return partition_balanced(weights, num_stages);
}

Parts cut_by_time(const std::vector<LayerCost>& layers, const std::string& method, int num_stages) {
  std::vector<double> weights;
  for (const auto& layer : layers) weights.push_back(layer.seconds);
  if (std::count(weights.begin(), weights.end(), 0.0) == std::ptrdiff_t(weights.size())) {
    raise<UsageError>("partition_method '", method,
                      "' has no times of layers, expected measured ones; 'parameters' needs none");
  }
  return partition_balanced(weights, num_stages);
}

Parts cut_by_parameters(const std::vector<LayerCost>& layers, int num_stages) {
  std::vector<double> weights;
  for (const auto& layer : layers) weights.push_back(static_cast<double>(layer.parameters));
  return partition_balanced(weights, num_stages);
}

}  // namespace

Parts partition_uniform(int num_items, int num_parts) {
  check_counts(num_items, num_parts);
  const int size = num_items / num_parts;
  const int larger = num_items % num_parts;
  Parts parts;
  for (int i = 0; i <= num_parts; ++i) parts.push_back(i * size + std::min(i, larger));
  return parts;
}

Parts partition_balanced(const std::vector<double>& weights, int num_parts) {
  check_counts(static_cast<int>(weights.size()), num_parts);
  check_weights(weights);
  const size_t count = weights.size();
  if (count <= size_t(num_parts)) return partition_uniform(static_cast<int>(count), num_parts);
  std::vector<double> sums(count + 1, 0);
  std::partial_sum(weights.begin(), weights.end(), sums.begin() + 1);
  std::vector<BestCuts> cuts(1, BestCuts(count + 1));
  cuts[0][0] = {0, kUnbounded, 0, 0};
  for (int part = 1; part <= num_parts; ++part) cuts.push_back(add_part(cuts.back(), sums, part));
  Parts parts(num_parts + 1, static_cast<int>(count));
  for (int part = num_parts; part > 0; --part) parts[part - 1] = cuts[part][parts[part]].last_begin;
  return parts;
}

Parts partition_layers(const std::vector<LayerCost>& layers, int num_stages, const std::string& method) {
  if (layers.size() < size_t(std::max(num_stages, 0))) {
    raise<UsageError>("partition_method '", method, "' has ", layers.size(), " layers for ", num_stages,
                      " stages, expected one or more for each stage: take fewer stages");
  }
  const std::string kind = lowercase(method);
  if (kind == "uniform") return partition_uniform(static_cast<int>(layers.size()), num_stages);
  if (kind == "parameters") return cut_by_parameters(layers, num_stages);
  if (kind.starts_with("type:")) return cut_by_type(layers, method, num_stages);
  if (kind == "profile") return cut_by_time(layers, method, num_stages);
  raise<UsageError>("partition_method is '", method,
                    "', expected 'uniform', 'parameters', 'type:REGEX' or 'profile'");
}

}  // namespace deepspeed
