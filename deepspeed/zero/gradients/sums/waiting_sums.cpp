#include "deepspeed/zero/gradients/sums/waiting_sums.h"

#include <ATen/ops/zeros.h>

#include "deepspeed/device/host_pool/idle_memory.h"
#include "deepspeed/zero/gradients/dense_gradient.h"

namespace deepspeed::zero {

WaitingSums::WaitingSums(const ParamStore& store) : store_(store) {
  for (const StoredGroup& group : store.groups()) has_.emplace_back(group.params.size(), false);
}

void WaitingSums::make(const std::vector<at::TensorOptions>& options) {
  for (size_t group = 0; group < options.size(); ++group) {
    flat_.push_back(at::zeros({store_.groups()[group].layout.padded_numel()}, options[group]));
    device::lend_memory(flat_.back());
  }
}

void WaitingSums::add(size_t group, size_t param, const at::Tensor& gradient) {
  if (has_[group][param]) {
    sum(group, param).add_(gradient);
  } else {
    device::fetch_memory(sum(group, param));
    sum(group, param).copy_(dense_gradient(gradient));
    has_[group][param] = true;
  }
}

at::Tensor WaitingSums::sum(size_t group, size_t param) const {
  return store_.groups()[group].part_of(flat_[group], param);
}

at::Tensor WaitingSums::take(size_t group, size_t param) {
  has_[group][param] = false;
  return sum(group, param);
}

void WaitingSums::clear() {
  for (auto& group : has_) group.assign(group.size(), false);
  for (const at::Tensor& flat : flat_) device::lend_memory(flat);
}

int64_t WaitingSums::bytes() const { return bytes_of(flat_); }

}  // namespace deepspeed::zero
