#include "deepspeed/zero/params/memory_overlap.h"

#include <iterator>

#include "deepspeed/base/error.h"
#include "deepspeed/zero/storage/storage_record.h"

namespace deepspeed::zero {
namespace {

bool has_memory(const at::Tensor& tensor) {
  return tensor.defined() && tensor.layout() == at::kStrided && tensor.numel() > 0 && !tensor.is_meta();
}

}  // namespace

MemoryOverlap::Bytes MemoryOverlap::bytes_of(const NamedTensor& tensor) {
  const at::Tensor& data = tensor.tensor;
  int64_t last = 0;  // element
  for (int64_t dim = 0; dim < data.dim(); ++dim) last += (data.size(dim) - 1) * data.stride(dim);
  const auto begin = reinterpret_cast<uintptr_t>(data.const_data_ptr());
  const auto size = static_cast<uintptr_t>(last + 1) * data.element_size();
  return {begin, begin + size, data.is_non_overlapping_and_dense(), &tensor.name};
}

const std::string* MemoryOverlap::find(const NamedTensor& tensor) const {
  if (const auto record = record_of(tensor.tensor)) {
    const auto entry = partitioned_.find(record.get());
    return entry == partitioned_.end() ? nullptr : entry->second;
  }
  const Bytes bytes = bytes_of(tensor);
  const auto next = full_.lower_bound(bytes.begin);
  if (next != full_.end() && next->first < bytes.end) return next->second.name;
  if (next != full_.begin() && std::prev(next)->second.end > bytes.begin) return std::prev(next)->second.name;
  for (const Bytes& other : sparse_) {
    if (bytes.is_full && other.begin < bytes.end && bytes.begin < other.end) return other.name;
  }
  return nullptr;
}

void MemoryOverlap::add(const NamedTensor& param) {
  if (!has_memory(param.tensor)) return;
  if (const std::string* other = find(param)) {
    raise<UsageError>("parameters '", *other, "' and '", param.name,
                      "' share memory, and giving each memory of its own would untie them; register one "
                      "tensor in both places");
  }
  if (const auto record = record_of(param.tensor)) {
    partitioned_.emplace(record.get(), &param.name);
    return;
  }
  const Bytes bytes = bytes_of(param);
  if (bytes.is_full) {
    full_.emplace(bytes.begin, bytes);
  } else {
    sparse_.push_back(bytes);
  }
}

void MemoryOverlap::check(const char* what, const NamedTensor& tensor) const {
  if (!has_memory(tensor.tensor)) return;
  if (const std::string* param = find(tensor)) {
    raise<UsageError>(what, " '", tensor.name, "' shares the memory of parameter '", *param,
                      "', which gets memory of its own: they would then differ; derive it from the parameter "
                      "where it is used, or copy it");
  }
}

}  // namespace deepspeed::zero
