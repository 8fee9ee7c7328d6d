#include "deepspeed/zero/memory_overlap.h"

#include <iterator>

#include "deepspeed/base/error.h"
#include "deepspeed/zero/storage_record.h"

namespace deepspeed::zero {
namespace {

[[noreturn]] void raise_overlap(const std::string& one, const std::string& other) {
  raise<UsageError>("zero.shard_store", "parameters '", one, "' and '", other,
                    "' share memory, which partitioning would untie; register one tensor in both places");
}

}  // namespace

void MemoryOverlap::add(const NamedTensor& param) {
  if (param.tensor.numel() == 0 || param.tensor.is_meta()) return;
  const auto record = record_of(param.tensor);
  if (!record) return add_bytes(param);
  const auto [entry, is_new] = partitioned_.try_emplace(record.get(), &param.name);
  if (!is_new) raise_overlap(*entry->second, param.name);
}

void MemoryOverlap::add_bytes(const NamedTensor& param) {
  const auto begin = reinterpret_cast<uintptr_t>(param.tensor.const_data_ptr());
  const auto end = begin + param.tensor.nbytes();
  const auto next = occupied_.lower_bound(begin);
  const std::string* other = nullptr;
  if (next != occupied_.end() && next->first < end) other = next->second.second;
  if (next != occupied_.begin() && std::prev(next)->second.first > begin)
    other = std::prev(next)->second.second;
  if (other != nullptr) raise_overlap(*other, param.name);
  occupied_[begin] = {end, &param.name};
}

}  // namespace deepspeed::zero
