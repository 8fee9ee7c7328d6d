#include "deepspeed/zero/non_finite_cause.h"

#include <cstddef>
#include <optional>
#include <vector>

#include "deepspeed/base/message.h"
#include "deepspeed/kernels/grad_stats.h"
#include "deepspeed/zero/gradients/grad_reducer.h"
#include "deepspeed/zero/layout/zero_groups.h"
#include "deepspeed/zero/params/param_store.h"
#include "deepspeed/zero/zero_state.h"

namespace deepspeed::zero {
namespace {

// Finds a parameter whose reduced gradient is not finite in this rank's slices, the nearest to the loss.
std::optional<ParamPlace> non_finite_in_slices(const ZeroState& state, const GradReducer& reducer,
                                               size_t num_groups) {
  for (size_t index = num_groups; index-- > 0;) {
    const at::Tensor gradient = reducer.gradient(index);
    const std::vector<ParamPiece> own = state.pieces(index);
    for (auto piece = own.rbegin(); piece != own.rend(); ++piece) {
      const Interval place = piece->in_interval;
      if (kernels::grad_stats(gradient.narrow(0, place.begin, place.numel())).finite) continue;
      return ParamPlace{index, piece->index};
    }
  }
  return std::nullopt;
}

// Finds a parameter whose local gradient, not yet sent to other ranks, is not finite: the nearest to the
// loss.
std::optional<ParamPlace> non_finite_of_rank(const ParamStore& store, const GradReducer& reducer) {
  for (size_t index = store.groups().size(); index-- > 0;) {
    const at::Tensor gradients = reducer.local_gradients(index);
    const auto& params = store.groups()[index].layout.params();
    for (auto placed = params.rbegin(); placed != params.rend(); ++placed) {
      const Interval place = placed->in_flat;
      if (kernels::grad_stats(gradients.narrow(0, place.begin, place.numel())).finite) continue;
      return ParamPlace{index, placed->index};
    }
  }
  return std::nullopt;
}

int own_rank_of(const comm::ProcessGroup& data) { return data.global_ranks()[size_t(data.rank())]; }

// Describes the non-finite gradient as far as the data-parallel ranks can tell, with the same text on all of
// them. Returns an empty text if only other ranks of the model have such a gradient.
std::string cause_in_replicas(const ParamStore& store, const ZeroState& state, const GradReducer& reducer,
                              const comm::ProcessGroup& data, bool keeps_gradients) {
  const auto describe = [&](const std::optional<ParamPlace>& place, const auto&... where) {
    if (!place) return std::string();
    return message("the gradient of '", store.groups()[place->group].params[place->param].name,
                   "' is not finite ", where...);
  };
  const auto in_slices = [&] { return non_finite_in_slices(state, reducer, store.groups().size()); };
  if (data.size() == 1) return describe(in_slices(), "on rank ", own_rank_of(data));
  // A sum may overflow although no summand does.
  const auto of_rank =
      keeps_gradients ? non_finite_of_rank(store, reducer) : reducer.non_finite_nearest_loss();
  for (const std::string& own : {describe(of_rank, "on rank ", own_rank_of(data)),
                                 describe(in_slices(), "in the sum over the ranks")}) {
    for (const std::string& text : data.all_gather_text(own)) {
      if (!text.empty()) return text;
    }
  }
  return {};
}

}  // namespace

std::string non_finite_cause(const ParamStore& store, const ZeroState& state, const GradReducer& reducer,
                             const ZeroGroups& ranks, bool keeps_gradients) {
  std::string cause = cause_in_replicas(store, state, reducer, ranks.data, keeps_gradients);
  if (ranks.model) {
    for (const std::string& text : ranks.model.all_gather_text(cause)) {
      if (cause.empty()) cause = text;
    }
  }
  return cause.empty() ? "a gradient is not finite" : cause;
}

}  // namespace deepspeed::zero
