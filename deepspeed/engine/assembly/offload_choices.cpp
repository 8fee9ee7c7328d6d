#include "deepspeed/engine/assembly/offload_choices.h"

#include <set>
#include <string>

#include "deepspeed/base/error.h"
#include "deepspeed/base/log.h"
#include "deepspeed/device/threads/core_binding.h"

namespace deepspeed {
namespace {

// Returns why super_offload must step after backward, as in DeepSpeed; null if it need not.
const char* why_after_backward(const config::DeepSpeedConfig& config,
                               std::optional<at::ScalarType> autocast) {
  if (config.gradient_clipping > 0.0) return "gradient_clipping needs the norm of all gradients first";
  if (config.fp16.enabled) return "fp16 looks for overflows in all gradients first";
  if (autocast == at::kHalf) return "torch_autocast in fp16 looks for overflows in all gradients first";
  return nullptr;
}

}  // namespace

zero::OptimizerOffload optimizer_offload(const config::DeepSpeedConfig& config, int rank,
                                         std::optional<at::ScalarType> autocast) {
  const config::OffloadOptimizerConfig& section = config.zero_optimization.offload_optimizer;
  zero::OptimizerOffload offload;
  if (section.device == "none") return offload;
  offload.device = section.device == "nvme" ? zero::OffloadDevice::kNvme : zero::OffloadDevice::kCpu;
  offload.pin_memory = section.pin_memory;
  offload.ratio = section.ratio;
  offload.piece_numel = config.zero_optimization.sub_group_size;
  offload.super_offload = section.super_offload && why_after_backward(config, autocast) == nullptr;
  if (offload.device != zero::OffloadDevice::kNvme) return offload;
  offload.swapper.folder = std::filesystem::path(*section.nvme_path) /
                           ("zero_stage_" + std::to_string(config.zero_optimization.stage)) / "optimizer" /
                           ("rank" + std::to_string(rank));
  offload.swapper.aio = {.block_bytes = size_t(config.aio.block_size),
                         .queue_depth = size_t(config.aio.queue_depth),
                         .num_threads = size_t(config.aio.intra_op_parallelism),
                         .single_submit = config.aio.single_submit,
                         .overlap_events = config.aio.overlap_events};
  offload.swapper.buffer_count = section.buffer_count;
  offload.swapper.pipeline_read = section.pipeline_read;
  offload.swapper.pipeline_write = section.pipeline_write;
  return offload;
}

void use_cores_for_step(const config::DeepSpeedConfig& config, const comm::World& world,
                        std::optional<at::ScalarType> autocast, zero::OptimizerOffload& offload) {
  const config::OffloadOptimizerConfig& section = config.zero_optimization.offload_optimizer;
  if (section.device != "cpu" || !section.super_offload) return;
  if (const char* reason = why_after_backward(config, autocast)) {
    log::warning("[config] without effect: zero_optimization.offload_optimizer.super_offload (", reason, ")");
    return;
  }
  offload.worker_cores = device::last_cores(device::cores_of_rank(world.local_rank(), world.local_size()),
                                            section.cpuadam_cores_perc);
}

void check_offloaded_optimizer(const config::DeepSpeedConfig& config, const optim::Optimizer& optimizer,
                               bool is_client) {
  const std::string& device = config.zero_optimization.offload_optimizer.device;
  if (device == "none") return;
  constexpr const char* kDevice = "zero_optimization.offload_optimizer.device: got \"";
  static const std::set<std::string> for_the_host = {"DeepSpeedCPUAdam", "DeepSpeedCPULion",
                                                     "DeepSpeedCPUAdagrad"};
  if (is_client && config.zero_force_ds_cpu_optimizer && !for_the_host.contains(optimizer.name())) {
    raise<ConfigError>(kDevice, device, "\" with an optimizer of class ", optimizer.name(),
                       " passed to initialize(), expected DeepSpeedCPUAdam, DeepSpeedCPULion or "
                       "DeepSpeedCPUAdagrad; zero_force_ds_cpu_optimizer = false takes any");
  }
  if (config.zero_optimization.offload_optimizer.super_offload && !optimizer.writes_over_gradients()) {
    raise<ConfigError>("zero_optimization.offload_optimizer.super_offload: got true with ", optimizer.name(),
                       ", expected false, or Adam or AdamW without amsgrad");
  }
  const bool checks_overflow = config.bf16.enabled && config.bf16.check_grad_overflow;
  const bool keeps_enough = optimizer.takes_steps_back() && !config.bf16.bf16_master_weights_and_grads;
  if (config.zero_optimization.offload_optimizer.super_offload && config.gradient_clipping == 0.0 &&
      checks_overflow && !keeps_enough) {
    raise<ConfigError>(
        "bf16.check_grad_overflow: got true beside super_offload and states of 16 bits, from "
        "which a step cannot be taken back, expected false");
  }
  const bool fp16_masters = config.fp16.fp16_master_weights_and_grads;
  const bool bf16_masters = config.bf16.bf16_master_weights_and_grads;
  if ((fp16_masters || bf16_masters) && optimizer.name() != "DeepSpeedCPUAdam") {
    raise<ConfigError>(fp16_masters ? "fp16.fp16" : "bf16.bf16", "_master_weights_and_grads: got true with ",
                       optimizer.name(), " and zero_optimization.offload_optimizer.device \"", device,
                       "\", expected DeepSpeedCPUAdam: name Adam or AdamW in `optimizer`");
  }
}

}  // namespace deepspeed
