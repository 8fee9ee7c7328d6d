// A graph holds the objects that a pickle builds while it is read. They refer to each other by number, since
// a pickle fills a container after others already hold it; at the end the graph becomes a Value, within
// bounds.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <c10/core/Storage.h>

#include "deepspeed/checkpoint/pickle/value.h"

namespace deepspeed::checkpoint {

struct PickleNode {
  enum class Kind { kLeaf, kList, kTuple, kSet, kDict, kOrderedDict, kGlobal, kObject, kStorage };
  Kind kind = Kind::kLeaf;
  Value leaf = {};
  std::vector<uint32_t> items = {};  // a dict's keys and values by turns; an object's constructor arguments
  std::string module = {};           // of a global or an object
  std::string name = {};
  int64_t state = -1;  // an object's state
  at::Storage storage = {};
  at::ScalarType storage_type = at::ScalarType::Undefined;  // Undefined: an untyped storage
};

class PickleGraph {
 public:
  uint32_t add(PickleNode node);
  uint32_t add_leaf(Value value) { return add({.leaf = std::move(value)}); }
  PickleNode& at(uint32_t index) { return nodes_[index]; }
  const PickleNode& at(uint32_t index) const { return nodes_[index]; }

  /// Builds the value below `root`. A container that stands in several places is copied to each; `max_bytes`
  /// bounds the whole, since a small file could ask for an endless one. Throws CheckpointError beyond that
  /// bound, for a cycle, and for a class or storage that stands alone.
  Value value(uint32_t root, uint64_t max_bytes) const;

 private:
  struct Budget {
    uint64_t bytes;
    int depth = 0;
  };
  Value build(uint32_t index, Budget& budget) const;
  std::vector<Value> build_items(const std::vector<uint32_t>& items, Budget& budget) const;
  Dict build_dict(const PickleNode& node, Budget& budget) const;

  std::vector<PickleNode> nodes_;
};

}  // namespace deepspeed::checkpoint
