#include "deepspeed/zero/shard_home.h"

#include <ATen/ops/zeros.h>

namespace deepspeed::zero {
namespace {

bool is_pinned(const at::TensorOptions& options) { return options.pinned_memory(); }

}  // namespace

ShardHome::ShardHome(const ShardHomeOptions& options) : options_(options) {
  if (options_.place == ParamHome::kDisk) file_ = std::make_shared<ShardFile>(options_.file);
}

at::TensorOptions ShardHome::host_memory(at::ScalarType dtype, const at::Device& device) const {
  return at::TensorOptions().dtype(dtype).pinned_memory(options_.pin_memory && device.is_cuda());
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
  const at::TensorOptions memory = options_.place == ParamHome::kHost
                                       ? host_memory(dtype, device)
                                       : at::TensorOptions().dtype(dtype).device(device);
  group.flat = at::zeros({layout.flat_numel()}, memory);
  for (size_t index = 0; index < params.size(); ++index) {
    const Interval place = layout.place(index);
    group.shards.push_back(
        std::make_shared<MemoryShard>(group.flat.narrow(0, place.begin, place.numel()), is_pinned(memory)));
  }
  return group;
}

std::shared_ptr<Shard> ShardHome::make_apart(const NamedTensor& param, int64_t numel, at::ScalarType dtype) {
  const auto bytes = numel * static_cast<int64_t>(c10::elementSize(dtype));
  const bool is_worth_it = numel > 0 && bytes >= options_.min_file_bytes;
  if (is_worth_it && in_host_numel_ + numel > options_.max_in_host_numel)
    return file_->add(param.name, numel, dtype);
  if (is_worth_it) in_host_numel_ += numel;
  const at::TensorOptions memory = host_memory(dtype, param.tensor.device());
  return std::make_shared<MemoryShard>(at::zeros({numel}, memory), is_pinned(memory));
}

}  // namespace deepspeed::zero
