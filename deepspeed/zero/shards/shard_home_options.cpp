#include "deepspeed/zero/shards/shard_home_options.h"

#include <filesystem>

#include "deepspeed/base/message.h"

namespace deepspeed::zero {
namespace {

// Names the folder as DeepSpeed does for parameters of the dtype.
const char* folder_name_of(at::ScalarType dtype) {
  return dtype == at::kHalf ? "float16params" : dtype == at::kBFloat16 ? "bfloat16params" : "float32params";
}

ShardFileOptions shard_file_options(const config::DeepSpeedConfig& config, at::ScalarType dtype, int rank) {
  const config::OffloadParamConfig& offload = config.zero_optimization.offload_param;
  ShardFileOptions options;
  options.folder = std::filesystem::path(*offload.nvme_path) / "zero_stage_3" / folder_name_of(dtype) /
                   message("rank", rank);
  options.aio.block_bytes = static_cast<size_t>(config.aio.block_size);
  options.aio.queue_depth = static_cast<size_t>(config.aio.queue_depth);
  options.aio.num_threads = static_cast<size_t>(config.aio.intra_op_parallelism);
  options.aio.single_submit = config.aio.single_submit;
  options.aio.overlap_events = config.aio.overlap_events;
  options.buffer_count = offload.buffer_count;
  options.buffer_numel = offload.buffer_size;
  return options;
}

}  // namespace

ShardHomeOptions shard_home_options(const config::DeepSpeedConfig& config, at::ScalarType dtype, int rank,
                                    bool on_cuda) {
  const config::OffloadParamConfig& offload = config.zero_optimization.offload_param;
  ShardHomeOptions options;
  if (offload.device == "none") return options;
  options.place = offload.device == "cpu" ? ParamHome::kHost : ParamHome::kDisk;
  options.pin_memory = offload.pin_memory && on_cuda;
  if (options.place == ParamHome::kHost) return options;
  options.file = shard_file_options(config, dtype, rank);
  options.file.pin_memory = options.pin_memory;
  options.max_in_host_numel = offload.max_in_cpu;
  // A disk request costs as much as a whole block, so smaller shards stay in host memory.
  options.min_file_bytes = config.aio.block_size;
  return options;
}

}  // namespace deepspeed::zero
