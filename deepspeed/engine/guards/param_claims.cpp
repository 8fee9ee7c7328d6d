#include "deepspeed/engine/guards/param_claims.h"

#include <mutex>
#include <unordered_map>

#include "deepspeed/base/error.h"

namespace deepspeed {
namespace {

/// Maps each parameter claimed by an engine of this process to that engine's ZeRO stage.
struct ClaimedParams {
  std::mutex mutex;
  std::unordered_map<const at::TensorImpl*, int64_t> stage_of;

  static ClaimedParams& instance() {
    static auto& all = *new ClaimedParams;
    return all;
  }
};

[[noreturn]] void refuse_claim(const NamedTensor& param, int64_t stage) {
  raise<UsageError>(
      "parameter '", param.name, "' is with another engine, of ZeRO stage ", stage,
      ", which is alive: go on with that engine, or call its destroy() or let go of it before another "
      "initialize() of the model");
}

}  // namespace

void ParamClaims::add(const NamedTensor& param, int64_t stage) {
  ClaimedParams& all = ClaimedParams::instance();
  const std::lock_guard lock(all.mutex);
  const at::TensorImpl* const tensor = param.tensor.unsafeGetTensorImpl();
  const auto [entry, is_new] = all.stage_of.emplace(tensor, stage);
  if (!is_new) refuse_claim(param, entry->second);
  held_.push_back(tensor);
}

void ParamClaims::check(const NamedTensor& param) {
  ClaimedParams& all = ClaimedParams::instance();
  const std::lock_guard lock(all.mutex);
  const auto entry = all.stage_of.find(param.tensor.unsafeGetTensorImpl());
  if (entry != all.stage_of.end()) refuse_claim(param, entry->second);
}

void ParamClaims::release() noexcept {
  if (held_.empty()) return;
  ClaimedParams& all = ClaimedParams::instance();
  const std::lock_guard lock(all.mutex);
  for (const at::TensorImpl* tensor : held_) all.stage_of.erase(tensor);
  held_.clear();
}

}  // namespace deepspeed
