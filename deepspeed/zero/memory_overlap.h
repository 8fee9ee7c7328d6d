// Whether parameters share memory, which partitioning would untie.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <unordered_map>
#include <utility>

#include "deepspeed/zero/param_store.h"

namespace deepspeed::zero {

class StorageRecord;

class MemoryOverlap {
 public:
  /// Throws UsageError that names both where it shares memory with one that was added before, which must live
  /// still. A parameter on the meta device and one without elements share none.
  void add(const NamedTensor& param);

 private:
  void add_bytes(const NamedTensor& param);

  // Bytes of memory, by their begin: the end and the parameter.
  std::map<uintptr_t, std::pair<uintptr_t, const std::string*>> occupied_;
  std::unordered_map<const StorageRecord*, const std::string*> partitioned_;
};

}  // namespace deepspeed::zero
