#include "deepspeed/checkpoint/sources/layer_cut.h"

#include <algorithm>
#include <map>
#include <utility>

#include "deepspeed/checkpoint/sources/numel_of.h"
#include "deepspeed/checkpoint/sources/states_of_one_rank.h"

namespace deepspeed::checkpoint {
namespace {

constexpr size_t kEnough = 2;  // ways to find; a second one only shows that the result is ambiguous

/// Returns whether `params`, alone or with further ones, may be the parameters of `stage`.
bool may_grow(const NamedShapes& params, const StageSizes& stage) {
  if (stage.flat_numel) return numel_of(params) <= *stage.flat_numel;
  return params.size() <= stage.shapes.size();
}

bool fits(const NamedShapes& params, const StageSizes& stage) {
  if (stage.flat_numel) return numel_of(params) == *stage.flat_numel;
  return std::ranges::equal(params, stage.shapes, [](const auto& param, const auto& known) {
    return !known || param.second == *known;
  });
}

/// Returns the parameters of a stage with the layers [begin, end), in its optimizer's order.
NamedShapes parameters_of(const std::vector<LayerParameters>& layers, size_t begin, size_t end) {
  NamedShapes params;
  for (const bool is_tied : {true, false}) {
    for (size_t layer = begin; layer < end; ++layer) {
      if (layers[layer].is_tied != is_tied) continue;
      for (const auto& param : layers[layer].params) {
        if (is_tied && std::ranges::find(params, param) != params.end()) continue;
        params.push_back(param);
      }
    }
  }
  return params;
}

/// Finds how the remaining layers can be distributed over the remaining stages.
class CutSearch {
 public:
  CutSearch(const std::vector<LayerParameters>& layers, const std::vector<StageSizes>& stages)
      : layers_(layers), stages_(stages) {}

  const std::vector<StageParameters>& from(size_t stage, size_t layer) {
    const auto known = found_.find({stage, layer});
    if (known != found_.end()) return known->second;
    std::vector<StageParameters> ways;
    if (stage == stages_.size()) {
      if (layer == layers_.size()) ways.emplace_back();
    } else {
      for (size_t end = layer; end <= layers_.size() && ways.size() < kEnough; ++end) {
        const NamedShapes params = parameters_of(layers_, layer, end);
        if (!may_grow(params, stages_[stage])) break;
        if (fits(params, stages_[stage])) add(params, from(stage + 1, end), ways);
      }
    }
    return found_.emplace(std::pair(stage, layer), std::move(ways)).first->second;
  }

 private:
  /// Adds ways that begin with `params`, without repeats. Layers without parameters, and layers tied to
  /// others of the stage, may be on either side of a cut; that counts as one way.
  static void add(const NamedShapes& params, const std::vector<StageParameters>& later,
                  std::vector<StageParameters>& ways) {
    for (const StageParameters& rest : later) {
      StageParameters way{params};
      way.insert(way.end(), rest.begin(), rest.end());
      if (ways.size() < kEnough && std::ranges::find(ways, way) == ways.end()) ways.push_back(std::move(way));
    }
  }

  const std::vector<LayerParameters>& layers_;
  const std::vector<StageSizes>& stages_;
  std::map<std::pair<size_t, size_t>, std::vector<StageParameters>> found_;  // by stage and layer
};

}  // namespace

StageSizes sizes_of(const PlainGroupStates& group) {
  StageSizes result;
  if (group.fp32_flat.defined() && group.params.size() == 1) {
    result.flat_numel = group.fp32_flat.numel();
    return result;
  }
  for (size_t index = 0; index < group.params.size(); ++index) {
    auto& shape = result.shapes.emplace_back();
    if (index < group.fp32.size()) {
      shape = group.fp32[index].sizes().vec();
      continue;
    }
    for (const auto& [name, tensor] : group.params[index].tensors) {
      // A scalar may belong to the whole parameter.
      if (tensor.dim() > 0 && !is_of_one_rank(name)) shape = tensor.sizes().vec();
    }
  }
  return result;
}

std::vector<StageParameters> find_cuts(const std::vector<LayerParameters>& layers,
                                       const std::vector<StageSizes>& stages) {
  return CutSearch(layers, stages).from(0, 0);
}

}  // namespace deepspeed::checkpoint
