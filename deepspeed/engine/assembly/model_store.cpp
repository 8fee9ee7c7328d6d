// Stage 3 makes shards of the parameters, some of which may be partitioned already. The other stages need
// whole parameters and lay them out in flat groups.
#include "deepspeed/engine/assembly/model_store.h"

#include <functional>
#include <unordered_set>
#include <utility>

#include "deepspeed/base/error.h"
#include "deepspeed/base/log.h"
#include "deepspeed/engine/guards/sendable.h"
#include "deepspeed/zero/gathered_parameters.h"
#include "deepspeed/zero/make_whole.h"
#include "deepspeed/zero/params/memory_overlap.h"
#include "deepspeed/zero/params/param_store.h"
#include "deepspeed/zero/params/set_values.h"
#include "deepspeed/zero/params/shard_store.h"
#include "deepspeed/zero/shards/shard_home_options.h"

namespace deepspeed {
namespace {

// Returns the parameters that no optimizer updates.
std::vector<NamedTensor> rest_of(const EngineModel& model,
                                 const std::vector<std::vector<NamedTensor>>& groups) {
  std::unordered_set<const at::TensorImpl*> grouped;
  for (const auto& params : groups) {
    for (const auto& param : params) grouped.insert(param.tensor.unsafeGetTensorImpl());
  }
  std::vector<NamedTensor> rest = model.parameters;
  std::erase_if(
      rest, [&](const NamedTensor& param) { return grouped.contains(param.tensor.unsafeGetTensorImpl()); });
  return rest;
}

// Casts parameters without an optimizer to the model's dtype and makes them equal on all ranks.
void prepare_rest(const std::vector<NamedTensor>& rest, const comm::ProcessGroup& group,
                  at::ScalarType dtype) {
  for (const NamedTensor& param : rest) {
    if (param.tensor.is_floating_point() && dtype != at::kFloat) {
      param.tensor.set_data(param.tensor.detach().to(dtype).contiguous());
    }
    if (group.size() > 1) group.broadcast(sendable(param.tensor.detach()), 0);
  }
}

zero::ShardStore::Options shard_options(const config::ZeroConfig& zero, at::ScalarType dtype) {
  return {dtype, zero.sub_group_size, {.keys = zero}};
}

// Makes parameters whole that an earlier stage-3 engine left partitioned. Those partitioned by zero::Init are
// an error: stage 3 could use them, so they are not gathered unasked.
void require_whole(const EngineModel& model, int64_t stage) {
  std::vector<at::Tensor> abandoned;
  for (const NamedTensor& param : model.parameters) {
    if (zero::is_abandoned(param.tensor)) abandoned.push_back(param.tensor);
  }
  zero::make_whole(abandoned);
  for (const NamedTensor& param : model.parameters) {
    if (!zero::is_partitioned(param.tensor)) continue;
    raise<UsageError>("parameter '", param.name,
                      "' was partitioned by zero::Init or another engine, and zero_optimization.stage is ",
                      stage, ", expected 3; else build the model without zero::Init (enabled = false), call ",
                      "the other engine's destroy(), or zero::make_whole(model->parameters())");
  }
}

// Checks memory that make_store() replaces: at stage 3 that of parameters without an optimizer (`rest`) too.
void check_memory_is_their_own(const std::vector<std::vector<NamedTensor>>& groups,
                               const std::vector<NamedTensor>& rest, const EngineModel& model,
                               int64_t stage) {
  zero::MemoryOverlap overlap;
  for (const auto& params : groups) {
    for (const NamedTensor& param : params) overlap.add(param);
  }
  for (const NamedTensor& param : rest) {
    if (stage == 3) {
      overlap.add(param);
    } else {
      overlap.check("frozen parameter", param);
    }
  }
  for (const NamedTensor& buffer : model.buffers) overlap.check("buffer", buffer);
}

bool is_partitioned_rest(const NamedTensor& param, at::ScalarType dtype) {
  return param.tensor.is_floating_point() && (dtype != at::kFloat || param.tensor.scalar_type() == dtype);
}

// Stage 3 also partitions parameters that no optimizer updates, if they have the model's dtype.
ModelStore shard_model(const config::DeepSpeedConfig& config, std::vector<std::vector<NamedTensor>> groups,
                       std::vector<NamedTensor> rest, const zero::ZeroGroups& ranks, at::ScalarType dtype,
                       bool on_cuda) {
  if (config.zero_optimization.round_robin_gradients) {
    log::warning(
        "[config] without effect: zero_optimization.round_robin_gradients (at stage 3 every rank "
        "owns a part of each parameter)");
  }
  const auto is_shared_out = [&](const NamedTensor& param) { return is_partitioned_rest(param, dtype); };
  std::vector<NamedTensor> whole = rest;
  std::erase_if(whole, is_shared_out);
  std::erase_if(rest, std::not_fn(is_shared_out));
  prepare_rest(whole, ranks.data, dtype);
  if (groups.empty() && rest.empty()) return {};
  zero::ShardStore::Options options = shard_options(config.zero_optimization, dtype);
  options.home = zero::shard_home_options(config, dtype, ranks.data.rank(), on_cuda);
  auto store = std::make_unique<zero::ShardStore>(std::move(groups), std::move(rest), ranks, options);
  auto pool = store->pool();
  return {std::move(store), std::move(pool)};
}

}  // namespace

ParamClaims claim_parameters(const EngineModel& model, const std::vector<std::vector<NamedTensor>>& groups,
                             int64_t stage, at::ScalarType dtype) {
  ParamClaims claims;
  // A parameter that occurs twice in the groups is reported by the store.
  std::unordered_set<const at::TensorImpl*> seen;
  for (const auto& params : groups) {
    for (const NamedTensor& param : params) {
      if (seen.insert(param.tensor.unsafeGetTensorImpl()).second) claims.add(param, stage);
    }
  }
  for (const NamedTensor& param : rest_of(model, groups)) {
    const bool is_cast =
        param.tensor.is_floating_point() && dtype != at::kFloat && param.tensor.scalar_type() != dtype;
    if (stage == 3 && is_partitioned_rest(param, dtype)) {
      claims.add(param, stage);
    } else if (is_cast || zero::is_partitioned(param.tensor)) {
      ParamClaims::check(param);
    }
  }
  return claims;
}

ModelStore make_store(const config::DeepSpeedConfig& config, std::vector<std::vector<NamedTensor>> groups,
                      const EngineModel& model, const zero::ZeroGroups& ranks, at::ScalarType dtype) {
  const config::ZeroConfig& zero = config.zero_optimization;
  if (zero.stage != 3) require_whole(model, zero.stage);
  std::vector<NamedTensor> rest = rest_of(model, groups);
  check_memory_is_their_own(groups, rest, model, zero.stage);
  if (zero.stage == 3)
    return shard_model(config, std::move(groups), std::move(rest), ranks, dtype, model.device().is_cuda());
  prepare_rest(rest, ranks.data, dtype);
  if (groups.empty()) return {};
  auto store = std::make_unique<zero::ParamStore>(
      std::move(groups), ranks.shard.size(),
      zero::ParamStore::Options{dtype, zero.round_robin_gradients, static_cast<int>(zero.stage)});
  store->broadcast(ranks.data, 0);
  return {std::move(store), nullptr};
}

}  // namespace deepspeed
