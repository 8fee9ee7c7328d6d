// Whether parameters share memory, with one another or with other tensors of the model: giving them memory
// of their own would untie them.
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
  /// Adds a parameter that gets other memory. Throws UsageError, naming both, where it shares memory with one
  /// that was added before and lives still. Parameters on the meta device or without elements share none; two
  /// whose elements may lie between each other's, such as two blocks of columns, are not taken to share.
  void add(const NamedTensor& param);
  /// Throws UsageError, naming both, where a tensor that keeps its memory shares it with an added parameter.
  /// what: what the tensor is, such as "buffer".
  void check(const char* what, const NamedTensor& tensor) const;

 private:
  struct Bytes {
    uintptr_t begin;
    uintptr_t end;
    bool is_full;  // an element at each place
    const std::string* name;
  };

  static Bytes bytes_of(const NamedTensor& tensor);
  /// The name of a parameter that was added and shares memory with it; null where none does.
  const std::string* find(const NamedTensor& tensor) const;

  std::map<uintptr_t, Bytes> full_;  // by their begin; none meets another
  std::vector<Bytes> sparse_;        // the others
  std::unordered_map<const StorageRecord*, const std::string*> partitioned_;
};

}  // namespace deepspeed::zero
