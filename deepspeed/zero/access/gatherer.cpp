// How a parameter becomes whole:
//
// 1. start() copies a parameter from its source if that is whole. For others it chooses a route: from the
//    secondary parts of the near ranks if available, otherwise from the shards of all ranks, quantized if the
//    config asks for it.
// 2. Small parameters with the same route share a collective (start_together); each large one has its own.
//    They are then in the state kGathering.
// 3. finish() waits for one of them, keeps this rank's secondary part and gives the storage its values.
//
// The secondary partition is that of ZeRO++ (hpZ). A gather over all ranks fills it. Until the shards change,
// every other gather of the parameter goes only over the near ranks: those of backward, and of further
// forwards before the step. A rank's part is on the parameter's device. It takes the parameter's bytes
// divided by the number of near ranks.
#include "deepspeed/zero/access/gatherer.h"

#include <exception>
#include <map>
#include <utility>

#include <ATen/ops/empty.h>
#include <c10/core/GradMode.h>
#include <c10/core/InferenceMode.h>

#include "deepspeed/base/error.h"
#include "deepspeed/base/message.h"
#include "deepspeed/comm/watch/call_subject.h"

namespace deepspeed::zero {
namespace {

using State = Gatherable::State;

// From this many bytes on, a separate message costs less than copies into and out of a shared one. Its
// parameter is received in place.
constexpr int64_t kTravelsAlone = 256 * 1024;

// Makes buffers ordinary tensors, whatever mode the calling operator runs in.
struct OrdinaryTensors {
  c10::InferenceMode normal{false};
  c10::NoGradGuard no_grad;
};

/// Names the parameters that a collective gathers, for error texts.
std::string subject_of(const std::vector<Gatherable*>& params) {
  const Gatherable &first = *params.front(), &last = *params.back();
  const GatherUnit* const unit = first.unit_of_owner();
  const std::string of_unit =
      unit != nullptr && unit == last.unit_of_owner() ? unit->name + ", " : std::string();
  if (params.size() == 1) return message(of_unit, "parameter '", first.name, "'");
  return message(of_unit, params.size(), " parameters from '", first.name, "' to '", last.name, "'");
}

}  // namespace

void Gatherer::start_one(Gatherable& param, bool exact) {
  if (LiveParams::counted_numel(param) > 0) live_.make_room(param.numel);
  start({&param}, exact);
}

void Gatherer::start(const std::vector<Gatherable*>& wanted, bool exact) {
  if (!wanted.empty()) check_not_suspended(*wanted.front());
  const OrdinaryTensors ordinary;
  struct Together {
    std::vector<std::shared_ptr<Shard>> shards;
    std::vector<Gatherable*> params;
  };
  std::map<GatherRoute, Together> by_route;
  for (Gatherable* const param : wanted) {
    const Gatherable* const source = param->source.get();
    if (source != nullptr && source->state == State::kWhole && !param->is_stale()) {
      live_.add(*param, source->whole.to(param->dtype));
      param->is_rounded = source->is_rounded;
      continue;
    }
    std::shared_ptr<Shard> shard = param->current_shard();
    const GatherRoute route = route_of(*param, exact);
    if (route.is_near) shard = param->secondary.shard;
    const auto bytes = shard->numel() * static_cast<int64_t>(c10::elementSize(param->dtype));
    if (options_.keys.stage3_allgather_sequential || bytes >= kTravelsAlone) {
      start_together({param}, {shard}, route);
      continue;
    }
    by_route[route].shards.push_back(shard);
    by_route[route].params.push_back(param);
  }
  for (auto& [route, together] : by_route) start_together(together.params, std::move(together.shards), route);
}

GatherRoute Gatherer::route_of(const Gatherable& param, bool exact) const {
  const Fetch exact_fetch =
      options_.keys.stage3_use_all_reduce_for_fetch_params ? Fetch::kAllReduce : Fetch::kAllGather;
  if (param.has_secondary() && !(exact && param.secondary.is_rounded))
    return {.is_near = true, .fetch = exact_fetch};
  if (exact || !is_quantized_for_passes(param)) return {.is_near = false, .fetch = exact_fetch};
  const bool is_float8 = options_.keys.zero_quantized_weights_dtype == "fp8";
  return {.is_near = false, .fetch = is_float8 ? Fetch::kFloat8AllGather : Fetch::kQuantizedAllGather};
}

// Norms and biases stay exact unless they are large: they are a small share of the data, and sensitive.
bool Gatherer::is_quantized_for_passes(const Gatherable& param) const {
  const bool has_codes =
      param.dtype == at::kFloat || param.dtype == at::kHalf || param.dtype == at::kBFloat16;
  const bool is_wanted = options_.keys.zero_quantized_weights ||
                         (options_.keys.zero_quantized_nontrainable_weights && !param.traits.is_trained);
  const bool is_norm = param.traits.is_persistent && !param.traits.is_matrix;
  return is_wanted && has_codes && !is_norm && options_.num_ranks > 1;
}

void Gatherer::start_together(const std::vector<Gatherable*>& params,
                              std::vector<std::shared_ptr<Shard>> shards, const GatherRoute& route) {
  if (params.empty()) return;
  const comm::CallSubject subject(subject_of(params));
  const auto gather =
      start_collective_(std::move(shards), params.front()->dtype, params.front()->device, route);
  for (size_t place = 0; place < params.size(); ++place) {
    Gatherable& param = *params[place];
    live_.add(param);
    param.gather = gather;
    param.place_in_gather = place;
    param.is_rounded = route.is_near ? param.secondary.is_rounded : is_rounded(route.fetch);
  }
}

void Gatherer::finish(Gatherable& param) {
  const OrdinaryTensors ordinary;
  try {
    if (param.gather) param.whole = param.gather->take(param.place_in_gather);
  } catch (...) {
    live_.drop(param);
    throw;
  }
  if (param.gather) keep_secondary(param);
  live_.set_whole(param);
}

void Gatherer::finish_unwanted(Gatherable& param) noexcept {
  try {
    finish(param);
  } catch (const std::exception&) {  // finish() has dropped it
  }
}

// Persistent parameters are gathered only once for each change of the shards anyway.
void Gatherer::keep_secondary(Gatherable& param) const {
  if (options_.num_near == 0 || param.traits.is_persistent || param.has_secondary()) return;
  SecondaryPart& own = param.secondary;
  const int64_t numel = param.whole.numel() / options_.num_near;
  if (!own.shard) own.shard = std::make_shared<MemoryShard>(at::empty({numel}, param.whole.options()));
  own.shard->write(param.whole.narrow(0, options_.near_rank * numel, numel));
  own.version = param.version;
  own.is_rounded = param.is_rounded;
}

void Gatherer::make_whole(Gatherable& param) {
  if (param.state == State::kPartitioned) start_one(param);
  if (param.state == State::kGathering) finish(param);
}

void Gatherer::make_exactly_whole(Gatherable& param) {
  if (param.is_rounded && param.num_uses == 0) live_.release(param);
  if (param.state == State::kPartitioned) start_one(param, /*exact=*/true);
  make_whole(param);
}

void Gatherer::check_not_suspended(const Gatherable& param) const {
  if (is_suspended()) raise<UsageError>("parameter '", param.name, "' cannot be used: ", suspended_);
}

}  // namespace deepspeed::zero
