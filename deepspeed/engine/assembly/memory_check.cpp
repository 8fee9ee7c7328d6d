#include "deepspeed/engine/assembly/memory_check.h"

#include "deepspeed/base/error.h"
#include "deepspeed/base/interval.h"
#include "deepspeed/device/accelerator/memory.h"
#include "deepspeed/engine/assembly/zero_choices.h"
#include "deepspeed/zero/params/set_values.h"
#include "deepspeed/zero/params/trained_dtype.h"
#include "deepspeed/zero/update/slice_plan.h"

namespace deepspeed {
namespace {

/// Holds the bytes that one rank needs at least.
struct LeastBytes {
  int64_t parameters = 0;
  int64_t gradients = 0;
  int64_t masters = 0;
  int64_t total() const { return parameters + gradients + masters; }
};

int64_t item_bytes(at::ScalarType dtype) { return static_cast<int64_t>(c10::elementSize(dtype)); }

LeastBytes least_bytes(const std::vector<std::vector<NamedTensor>>& groups,
                       const config::DeepSpeedConfig& config, int ranks) {
  const zero::ZeroOptions options = zero_options(config, ranks);
  const at::ScalarType dtype = model_dtype(config);
  const int64_t stage = config.zero_optimization.stage;
  LeastBytes bytes;
  for (const auto& params : groups) {
    for (const NamedTensor& param : params) {
      const int64_t numel = param.tensor.numel();
      const int64_t part = shard_numel(numel, ranks);
      const at::ScalarType own = zero::trained_dtype(param.tensor, dtype);
      const at::ScalarType kept =
          own == at::kDouble ? own : options.gradients.accumulation_dtype.value_or(dtype);
      bytes.parameters += (stage == 3 ? part : numel) * item_bytes(own);
      bytes.gradients += (stage >= 2 ? part : numel) * item_bytes(kept);
      const zero::SlicePlan plan = zero::plan_slice({.dtype = own}, options.update);
      bytes.masters += (stage >= 1 ? part : numel) * plan.kept_bytes();
    }
  }
  return bytes;
}

/// Returns the bytes of the parameters as the program built them. They are freed when the engine makes its
/// own.
int64_t bytes_given_free(const std::vector<std::vector<NamedTensor>>& groups) {
  int64_t bytes = 0;
  for (const auto& params : groups) {
    for (const NamedTensor& param : params) {
      if (!zero::is_partitioned(param.tensor) && !param.tensor.is_meta())
        bytes += static_cast<int64_t>(param.tensor.nbytes());
    }
  }
  return bytes;
}

}  // namespace

void check_host_memory(const EngineModel& model, const std::vector<std::vector<NamedTensor>>& groups,
                       const config::DeepSpeedConfig& config, const comm::World& world, int num_shards) {
  const config::ZeroConfig& zero = config.zero_optimization;
  if (model.device().is_cuda() || groups.empty()) return;
  if (zero.offload_param.device != "none" || zero.offload_optimizer.device != "none") return;
  const LeastBytes needed = least_bytes(groups, config, num_shards);
  const int64_t available = device::available_host_bytes() + bytes_given_free(groups);
  if (needed.total() <= available) return;
  raise<UsageError>("rank ", world.rank(), " of ", world.size(), " needs at least ", needed.total(),
                    " bytes at zero_optimization.stage ", zero.stage, " (weights ", needed.parameters,
                    ", gradients ", needed.gradients, ", fp32 weights ", needed.masters,
                    ", the optimizer's states beside them), and has ", available,
                    "; use more ranks, a higher stage up to 3, or offload");
}

}  // namespace deepspeed
