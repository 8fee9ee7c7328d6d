#include "deepspeed/pipe/engine/tied_gradients.h"

#include <algorithm>

#include <ATen/ops/zeros.h>
#include <c10/core/GradMode.h>

#include "deepspeed/zero/gradients/grad_reducer.h"
#include "deepspeed/zero/params/param_store.h"
#include "deepspeed/zero/zero_optimizer.h"
#include "deepspeed/zero/zero_state.h"

namespace deepspeed::pipe {
namespace {

// Returns the data-parallel ranks of these stages at this rank's place among the slices.
std::vector<int> ranks_of(const ParallelRanks& grid, const std::vector<int>& stages) {
  std::vector<int> ranks;
  for (const int stage : stages) {
    for (int data = 0; data < grid.data_parallel_size(); ++data)
      ranks.push_back(grid.stage_to_global(stage, {{"data", data}}));
  }
  std::ranges::sort(ranks);
  return ranks;
}

struct Place {
  size_t group = 0, param = 0;
};

std::optional<Place> place_of(const at::Tensor& weight, const zero::ParamStore& store) {
  for (size_t group = 0; group < store.groups().size(); ++group) {
    const auto& params = store.groups()[group].params;
    for (size_t param = 0; param < params.size(); ++param) {
      if (params[param].tensor.is_same(weight)) return Place{group, param};
    }
  }
  return std::nullopt;
}

}  // namespace

TiedGradients::TiedGradients(const PipelineModule& module, const std::string& name,
                             const std::string& purpose)
    : module_(module) {
  std::vector<std::vector<int>> sets;
  for (const TiedWeight& weight : module.tied_weights()) sets.push_back(weight.stages);
  std::ranges::sort(sets);
  sets.erase(std::unique(sets.begin(), sets.end()), sets.end());
  for (const std::vector<int>& stages : sets) {
    std::string own_name = name + ".tied";
    for (const int stage : stages) own_name += "_" + std::to_string(stage);
    groups_.emplace(stages, module.world().own_group(own_name, purpose, ranks_of(module.grid(), stages)));
  }
}

void TiedGradients::broadcast_weights() const {
  const c10::NoGradGuard no_grad;
  for (const TiedWeight& weight : module_.tied_weights()) {
    const comm::ProcessGroup& group = group_of(weight);
    const auto& ranks = group.global_ranks();
    const int owner = module_.grid().stage_to_global(weight.stages.front(), {{"data", 0}});
    const at::Tensor values = weight.tensor.detach().contiguous();
    group.broadcast(values, int(std::ranges::find(ranks, owner) - ranks.begin()));
    weight.tensor.detach().copy_(values);
  }
}

void TiedGradients::reduce(zero::ZeroOptimizer& optimizer) const {
  const c10::NoGradGuard no_grad;
  for (const TiedWeight& weight : module_.tied_weights()) {
    const auto place = place_of(weight.tensor, optimizer.store());
    if (!place) continue;  // frozen, equally on all stages
    const at::Tensor gradient = optimizer.gradients().gradient(place->group);
    // If optimizer states are cut over the data-parallel ranks, each of these has one part of the gradient.
    const bool is_cut = optimizer.stage() > 0;
    const bool counts = is_cut || module_.grid().data_parallel_id() == 0;
    at::Tensor sum = at::zeros({weight.tensor.numel()}, gradient.options());
    const auto each_piece = [&](const auto& use) {
      for (const zero::ParamPiece& piece : optimizer.state().pieces(place->group)) {
        if (piece.index != place->param) continue;
        use(gradient.narrow(0, piece.in_interval.begin, piece.in_interval.numel()),
            sum.narrow(0, piece.offset_in_param, piece.in_interval.numel()));
      }
    };
    if (counts) each_piece([](const at::Tensor& own, const at::Tensor& part) { part.copy_(own); });
    group_of(weight).all_reduce(sum);
    each_piece([](const at::Tensor& own, const at::Tensor& part) { own.copy_(part); });
  }
}

std::vector<comm::ProcessGroup> TiedGradients::groups() const {
  std::vector<comm::ProcessGroup> groups;
  for (const auto& [stages, group] : groups_) groups.push_back(group);
  return groups;
}

}  // namespace deepspeed::pipe
