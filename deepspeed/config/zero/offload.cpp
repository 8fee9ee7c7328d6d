#include <utility>
#include <vector>

#include "deepspeed/config/zero/tables.h"

namespace deepspeed::config {
namespace {

constexpr const char* kNoOffload = "only offloading uses it";

Option with_optimizer_device(std::vector<Json> devices, const char* why) {
  return effective_where({"zero_optimization.offload_optimizer.device"}, std::move(devices), why);
}
Option with_optimizer_on_nvme() { return with_optimizer_device({"nvme"}, "only device nvme uses it"); }
Option with_param_device(std::vector<Json> devices, const char* why) {
  return effective_where({"zero_optimization.offload_param.device"}, std::move(devices), why);
}
Option with_params_on_nvme() { return with_param_device({"nvme"}, "only device nvme uses it"); }

}  // namespace

const Table<OffloadParamConfig>& offload_param_table() {
  using C = OffloadParamConfig;
  static const Table<C> table({
      entry("device", &C::device, "Where parameters wait while they are not in use.",
            {one_of({"none", "cpu", "nvme"})}),
      entry("nvme_path", &C::nvme_path, "The folder of the swap files on NVMe.",
            {with_params_on_nvme(), per_rank()}),
      entry("buffer_count", &C::buffer_count, "Buffers of the swapper.",
            {at_least(0), with_params_on_nvme()}),
      entry("buffer_size", &C::buffer_size, "Elements of one buffer.", {at_least(0), with_params_on_nvme()}),
      entry("max_in_cpu", &C::max_in_cpu, "Elements kept in host memory when the device is nvme.",
            {at_least(0), with_params_on_nvme()}),
      entry("pin_memory", &C::pin_memory, "Use page-locked host memory.",
            {with_param_device({"cpu", "nvme"}, kNoOffload), per_rank()}),
  });
  return table;
}

const Table<OffloadOptimizerConfig>& offload_optimizer_table() {
  using C = OffloadOptimizerConfig;
  static const Table<C> table({
      entry(
          "device", &C::device,
          "Where the optimizer's state lives: with cpu in host memory, with nvme on a disk; its step runs on "
          "the host.",
          {one_of({"none", "cpu", "nvme"})}),
      entry("nvme_path", &C::nvme_path, "The folder of the swap files on NVMe.",
            {with_optimizer_on_nvme(), per_rank()}),
      entry(
          "buffer_count", &C::buffer_count,
          "Tensors of a sub-group that may be in memory, in each stage of the pipeline: masters and states.",
          {at_least(0), with_optimizer_on_nvme()}),
      entry("pin_memory", &C::pin_memory, "Use page-locked host memory.",
            {with_optimizer_device({"cpu", "nvme"}, kNoOffload), per_rank()}),
      entry("pipeline_read", &C::pipeline_read, "Read the next sub-group while one is stepped.",
            {with_optimizer_on_nvme()}),
      entry("pipeline_write", &C::pipeline_write, "Step the next sub-group while the last one is written.",
            {with_optimizer_on_nvme()}),
      entry("fast_init", &C::fast_init, "Initialise faster on NVMe.",
            {without_effect("masters go to the disk one sub-group at a time, each in one write")}),
      entry("ratio", &C::ratio,
            "The part of the parameters whose state is offloaded and whose step runs on the host; below 1 "
            "needs stage 3.",
            {between(0, 1), with_optimizer_device({"cpu", "nvme"}, kNoOffload)}),
      entry("super_offload", &C::super_offload,
            "Step each sub-group on the host as soon as backward has its gradients, beside the rest of "
            "backward. Without gradient_clipping, with Adam or AdamW, at stages 2 and 3.",
            {with_optimizer_device({"cpu"}, "only device cpu uses it")}),
      entry("cpuadam_cores_perc", &C::cpuadam_cores_perc,
            "The part of the rank's cores to which super_offload's step is bound, at least one.",
            {between(0, 1), per_rank(),
             effective_where({"zero_optimization.offload_optimizer.super_offload"}, {true},
                             "only super_offload uses it")}),
  });
  return table;
}

}  // namespace deepspeed::config
