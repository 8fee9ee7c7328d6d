#include "deepspeed/engine/optimizer_offload.h"

#include <set>
#include <string>

#include "deepspeed/base/error.h"

namespace deepspeed {

zero::OptimizerOffload optimizer_offload(const config::DeepSpeedConfig& config, int rank) {
  const config::OffloadOptimizerConfig& section = config.zero_optimization.offload_optimizer;
  zero::OptimizerOffload offload;
  if (section.device == "none") return offload;
  offload.device = section.device == "nvme" ? zero::OffloadDevice::kNvme : zero::OffloadDevice::kCpu;
  offload.pin_memory = section.pin_memory;
  offload.ratio = section.ratio;
  offload.piece_numel = config.zero_optimization.sub_group_size;
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

void check_offloaded_optimizer(const config::DeepSpeedConfig& config, const optim::Optimizer& optimizer,
                               bool is_client) {
  const std::string& device = config.zero_optimization.offload_optimizer.device;
  if (device == "none") return;
  constexpr const char* kDevice = "zero_optimization.offload_optimizer.device: got \"";
  if (!optimizer.is_elementwise()) {
    raise<ConfigError>(
        "config", kDevice, device, "\" with ", optimizer.name(),
        ", which needs norms or shapes of whole parameters, expected \"none\", or an optimizer "
        "that updates each element by itself: Adam, AdamW, Lion, Adagrad, SGD, RMSprop");
  }
  static const std::set<std::string> for_the_host = {"DeepSpeedCPUAdam", "DeepSpeedCPULion",
                                                     "DeepSpeedCPUAdagrad"};
  if (is_client && config.zero_force_ds_cpu_optimizer && !for_the_host.contains(optimizer.name())) {
    raise<ConfigError>("config", kDevice, device, "\" with an optimizer of class ", optimizer.name(),
                       " passed to initialize(), expected DeepSpeedCPUAdam, DeepSpeedCPULion or "
                       "DeepSpeedCPUAdagrad; zero_force_ds_cpu_optimizer = false takes any");
  }
  const bool fp16_masters = config.fp16.fp16_master_weights_and_grads;
  const bool bf16_masters = config.bf16.bf16_master_weights_and_grads;
  if ((fp16_masters || bf16_masters) && optimizer.name() != "DeepSpeedCPUAdam") {
    raise<ConfigError>("config", fp16_masters ? "fp16.fp16" : "bf16.bf16",
                       "_master_weights_and_grads: got true with ", optimizer.name(),
                       " and zero_optimization.offload_optimizer.device \"", device,
                       "\", expected DeepSpeedCPUAdam: name Adam or AdamW in `optimizer`");
  }
}

}  // namespace deepspeed
