#include "deepspeed/zero/shards/shard_home.h"

#include <ATen/ops/zeros.h>

#include "deepspeed/device/accelerator/host_memory.h"

namespace deepspeed::zero {
ShardHome::ShardHome(const ShardHomeOptions& options)
    : options_(options), disk_(options.max_in_host_numel, options.min_file_bytes) {
  if (options_.place == ParamHome::kDisk) file_ = std::make_shared<ShardFile>(options_.file);
}

bool ShardHome::is_pinned(const at::Device& device) const { return options_.pin_memory && device.is_cuda(); }

at::Tensor ShardHome::host_zeros(int64_t numel, at::ScalarType dtype, const at::Device& device) const {
  return device::empty_host(numel, dtype, is_pinned(device)).zero_();
}

ShardHome::Group ShardHome::make_group(const std::vector<NamedTensor>& params, const ShardLayout& layout,
                                       at::ScalarType dtype) {
  Group group;
  if (options_.place == ParamHome::kDisk) {
    for (size_t index = 0; index < params.size(); ++index)
      group.shards.push_back(make_apart(params[index], layout.shard_numel(index), dtype));
    return group;
  }
  const at::Device device = params.front().tensor.device();
  const bool on_host = options_.place == ParamHome::kHost;
  group.flat = on_host ? host_zeros(layout.flat_numel(), dtype, device)
                       : at::zeros({layout.flat_numel()}, at::TensorOptions().dtype(dtype).device(device));
  for (size_t index = 0; index < params.size(); ++index) {
    const Interval place = layout.place(index);
    group.shards.push_back(std::make_shared<MemoryShard>(group.flat.narrow(0, place.begin, place.numel()),
                                                         on_host && is_pinned(device)));
  }
  return group;
}

std::shared_ptr<Shard> ShardHome::make_apart(const NamedTensor& param, int64_t numel, at::ScalarType dtype) {
  const auto bytes = numel * static_cast<int64_t>(c10::elementSize(dtype));
  if (disk_.takes(numel, bytes)) return file_->add(param.name, numel, dtype);
  const at::Device device = param.tensor.device();
  return std::make_shared<MemoryShard>(host_zeros(numel, dtype, device), is_pinned(device));
}

}  // namespace deepspeed::zero
