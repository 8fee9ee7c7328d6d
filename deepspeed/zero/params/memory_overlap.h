// Checks whether parameters share memory with one another or with other tensors of the model. Memory of their
// own would untie them.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <unordered_map>
#include <vector>

#include "deepspeed/tensor/named_tensor.h"

namespace deepspeed::zero {

class StorageRecord;

class MemoryOverlap {
 public:
  /// Adds a parameter that will get other memory. Throws UsageError naming two parameters if it shares memory
  /// with an earlier added one that still exists. Parameters on the meta device or without elements share no
  /// memory. Two parameters with interleaved elements, such as two blocks of columns, do not count as
  /// sharing.
  void add(const NamedTensor& param);
  /// Throws UsageError if a tensor that keeps its memory shares it with an added parameter. The error names
  /// both. what: kind of tensor, such as "buffer".
  void check(const char* what, const NamedTensor& tensor) const;

 private:
  struct Bytes {
    uintptr_t begin;
    uintptr_t end;
    bool is_full;  // has an element at each place
    const std::string* name;
  };

  static Bytes bytes_of(const NamedTensor& tensor);
  /// Returns the name of an added parameter that shares the tensor's memory, or null.
  const std::string* find(const NamedTensor& tensor) const;

  std::map<uintptr_t, Bytes> full_;  // by their begin; they do not overlap
  std::vector<Bytes> sparse_;        // those with gaps
  std::unordered_map<const StorageRecord*, const std::string*> partitioned_;
};

}  // namespace deepspeed::zero
