#include "deepspeed/zero/params/param_store.h"

#include <algorithm>
#include <unordered_set>
#include <utility>

#include <c10/core/GradMode.h>

#include "deepspeed/base/error.h"
#include "deepspeed/comm/making/buffer.h"
#include "deepspeed/zero/params/trained_dtype.h"

namespace deepspeed::zero {
namespace {

void check_param(const NamedTensor& param, const ParamStore::Options& options, const at::Device& device) {
  check_trained_dtype(param, options.dtype);
  if (param.tensor.device() == device) return;
  raise<UsageError>("parameter '", param.name, "' is on ", param.tensor.device(), ", the others on ", device,
                    "; move the model to one device first");
}

// Moves the parameters into one flat buffer, one at a time, so that at most one needs memory twice.
at::Tensor flatten(const std::vector<NamedTensor>& params, const FlatLayout& layout, at::ScalarType dtype,
                   const at::Device& device) {
  const c10::NoGradGuard no_grad;
  const at::Tensor flat =
      comm::zero_buffer(layout.padded_numel(), at::TensorOptions().dtype(dtype).device(device));
  for (size_t index = 0; index < params.size(); ++index) {
    const at::Tensor& param = params[index].tensor;
    const Interval place = layout.place(index);
    const at::Tensor view = flat.narrow(0, place.begin, place.numel()).view(param.sizes());
    view.copy_(param.detach());
    param.set_data(view);
  }
  return flat;
}

// The optimizer writes to the flat tensor, which does not change a parameter's version.
int64_t version_of(const NamedTensor& param) {
  return param.tensor.is_inference() ? 0 : static_cast<int64_t>(param.tensor._version());
}

}  // namespace

ParamStore::ParamStore(std::vector<std::vector<NamedTensor>> groups, int world_size, const Options& options)
    : dtype_(options.dtype), stage_(options.stage) {
  if (stage_ < 0 || stage_ > 2) {
    raise<UsageError>("stage ", stage_, " with parameters that are not partitioned, expected 0 to 2");
  }
  std::unordered_set<const at::TensorImpl*> seen;
  for (auto& params : groups) {
    if (params.empty()) raise<UsageError>("a parameter group is empty; give it a parameter or leave it out");
    std::vector<int64_t> numels;
    for (const NamedTensor& param : params) {
      check_param(param, options, params.front().tensor.device());
      if (!seen.insert(param.tensor.unsafeGetTensorImpl()).second) {
        raise<UsageError>("parameter '", param.name, "' stands in the parameter groups twice; list it once");
      }
      numels.push_back(param.tensor.numel());
    }
    FlatLayout layout(numels, world_size, options.round_robin);
    const at::ScalarType dtype = trained_dtype_of_group(params, options.dtype);
    at::Tensor flat = flatten(params, layout, dtype, params.front().tensor.device());
    std::vector<int64_t>& versions = versions_.emplace_back();
    for (const NamedTensor& param : params) versions.push_back(version_of(param));
    groups_.push_back({std::move(params), std::move(layout), dtype, std::move(flat)});
  }
}

std::vector<FlatLayout> ParamStore::layouts() const {
  std::vector<FlatLayout> result;
  for (const StoredGroup& group : groups_) result.push_back(group.layout);
  return result;
}

bool ParamStore::has_doubles() const {
  return std::ranges::any_of(groups_, [](const StoredGroup& group) { return group.dtype == at::kDouble; });
}

at::TensorOptions ParamStore::options() const {
  return at::TensorOptions().dtype(dtype_).device(groups_.front().params.front().tensor.device());
}

int64_t ParamStore::bytes() const {
  int64_t bytes = 0;
  for (const StoredGroup& group : groups_) bytes += static_cast<int64_t>(group.flat.nbytes());
  return bytes;
}

std::optional<std::string> ParamStore::name_of_replaced() const {
  for (const StoredGroup& group : groups_) {
    for (size_t index = 0; index < group.params.size(); ++index) {
      const at::Tensor& param = group.params[index].tensor;
      const bool is_here = param.has_storage() && param.storage().is_alias_of(group.flat.storage()) &&
                           param.storage_offset() == group.layout.place(index).begin &&
                           param.scalar_type() == group.dtype;
      if (!is_here) return group.params[index].name;
    }
  }
  return std::nullopt;
}

std::vector<size_t> ParamStore::take_externally_written(size_t group) {
  std::vector<size_t> written;
  std::vector<int64_t>& versions = versions_[group];
  for (size_t index = 0; index < versions.size(); ++index) {
    const int64_t version = version_of(groups_[group].params[index]);
    if (std::exchange(versions[index], version) != version) written.push_back(index);
  }
  return written;
}

void ParamStore::broadcast(const comm::ProcessGroup& group, int root) {
  if (group.size() == 1) return;
  for (const StoredGroup& stored : groups_) group.broadcast(stored.flat, root);
}

}  // namespace deepspeed::zero
