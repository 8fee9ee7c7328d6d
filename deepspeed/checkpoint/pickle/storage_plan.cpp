// Plans records in two passes over the tensors of a value, visiting each tensor object once.
//
// The first pass merges the extents of dense tensors that overlap in one storage, such as tied weights or a
// view and its base (merge_extents). Extents that only touch stay separate, so that neighbours in a flat
// buffer get their own records. The second pass locates each tensor in the merged extent that contains it. A
// tensor that is in none (strided with holes, conjugated, empty) is copied into its own record.
#include "deepspeed/checkpoint/pickle/storage_plan.h"

#include <algorithm>
#include <map>
#include <unordered_set>
#include <utility>

#include "deepspeed/base/error.h"
#include "deepspeed/checkpoint/pickle/names/pickle_names.h"
#include "deepspeed/checkpoint/pickle/value_children.h"

namespace deepspeed::checkpoint {
namespace {

class Collector {
 public:
  std::vector<at::Tensor> tensors;

  void visit(const Value& value) {
    if (const auto* tensor = value.get_if<at::Tensor>()) {
      if (seen_.insert(tensor->unsafeGetTensorImpl()).second) tensors.push_back(*tensor);
    }
    visit_children(value, [this](const Value& child) { visit(child); });
  }

 private:
  std::unordered_set<const void*> seen_;
};

void check(const at::Tensor& tensor, bool deferred) {
  if (!tensor.defined()) raise<UsageError>("an undefined tensor cannot be saved; leave it out");
  if (tensor.is_meta() && !deferred)
    raise<UsageError>("a tensor on the meta device has no data to save, got one of shape ", tensor.sizes(),
                      " and dtype ", tensor.scalar_type(), "; give it values first, as by at::zeros_like()");
  if (tensor.layout() != at::kStrided)
    raise<UsageError>("only dense tensors can be saved, got one of layout ", tensor.layout(), " and shape ",
                      tensor.sizes(), "; save its to_dense()");
  if (dtype_name(tensor.scalar_type()).empty()) {
    raise<UsageError>("a tensor of dtype ", tensor.scalar_type(),
                      " cannot be saved; convert it to one that torch.load knows, such as Float");
  }
}

struct Extent {
  int64_t begin = 0;
  int64_t end = 0;
};

/// Returns the extent of a non-empty tensor in its storage, in elements.
Extent extent_of(const at::Tensor& tensor) {
  int64_t last = tensor.storage_offset();
  for (int64_t dim = 0; dim < tensor.dim(); ++dim) last += (tensor.size(dim) - 1) * tensor.stride(dim);
  return {tensor.storage_offset(), last + 1};
}

bool is_plain_view(const at::Tensor& tensor) {
  return tensor.numel() > 0 && !tensor.is_conj() && !tensor.is_neg();
}

struct SharedRecord {
  Extent extent;
  int64_t record = -1;  // -1 until numbered
};

using StorageKey = std::pair<const void*, at::ScalarType>;
StorageKey key_of(const at::Tensor& tensor) {
  return {tensor.storage().unsafeGetStorageImpl(), tensor.scalar_type()};
}

/// Returns each storage's extents of dense tensors, ascending, with overlapping ones merged.
std::map<StorageKey, std::vector<SharedRecord>> merge_extents(const std::vector<at::Tensor>& tensors) {
  std::map<StorageKey, std::vector<SharedRecord>> merged;
  for (const at::Tensor& tensor : tensors) {
    if (is_plain_view(tensor) && tensor.is_non_overlapping_and_dense()) {
      merged[key_of(tensor)].push_back({extent_of(tensor)});
    }
  }
  for (auto& [key, parts] : merged) {
    std::ranges::sort(parts, {}, [](const SharedRecord& part) { return part.extent.begin; });
    std::vector<SharedRecord> unions;
    for (const SharedRecord& part : parts) {
      if (!unions.empty() && part.extent.begin < unions.back().extent.end) {
        unions.back().extent.end = std::max(unions.back().extent.end, part.extent.end);
      } else {
        unions.push_back(part);
      }
    }
    parts = std::move(unions);
  }
  return merged;
}

SharedRecord* find_record(std::vector<SharedRecord>& records, const Extent& extent) {
  auto after = std::ranges::upper_bound(records, extent.begin, {},
                                        [](const SharedRecord& record) { return record.extent.begin; });
  if (after == records.begin()) return nullptr;
  SharedRecord& candidate = *std::prev(after);
  return extent.end <= candidate.extent.end ? &candidate : nullptr;
}

}  // namespace

StoragePlan::StoragePlan(const Value& value, bool deferred) {
  Collector collector;
  collector.visit(value);
  for (const at::Tensor& tensor : collector.tensors) check(tensor, deferred);
  auto shared = merge_extents(collector.tensors);
  for (const at::Tensor& tensor : collector.tensors) {
    Placement& placement = placements_[tensor.unsafeGetTensorImpl()];
    placement.sizes = tensor.sizes().vec();
    SharedRecord* part = nullptr;
    if (const auto found = shared.find(key_of(tensor)); is_plain_view(tensor) && found != shared.end()) {
      part = find_record(found->second, extent_of(tensor));
    }
    const at::Tensor plain = tensor.detach();
    if (part == nullptr) {
      const at::Tensor copy = plain.resolve_conj().resolve_neg().contiguous();
      placement.strides = copy.strides().vec();
      placement.record = records_.size();
      records_.push_back(copy.view({-1}));
      continue;
    }
    if (part->record < 0) {
      part->record = int64_t(records_.size());
      records_.push_back(plain.as_strided({part->extent.end - part->extent.begin}, {1}, part->extent.begin));
    }
    placement.strides = tensor.strides().vec();
    placement.record = size_t(part->record);
    placement.offset = tensor.storage_offset() - part->extent.begin;
  }
}

const StoragePlan::Placement& StoragePlan::placement(const at::Tensor& tensor) const {
  return placements_.at(tensor.unsafeGetTensorImpl());
}

}  // namespace deepspeed::checkpoint
