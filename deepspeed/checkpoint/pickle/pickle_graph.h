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
  enum class Kind { kLeaf, kList, kTuple, kSet, kFrozenSet, kDict, kOrderedDict, kObject, kStorage };
  Kind kind = Kind::kLeaf;
  Value leaf = {};
  std::vector<uint32_t> items = {};  // a dict's keys and values by turns; what is appended to an object
  at::Storage storage = {};
  at::ScalarType storage_type = at::ScalarType::Undefined;  // Undefined: an untyped storage
  // The members below are an object's; numbers of nodes, -1 where it has none.
  Object::Making making = Object::Making::kCall;
  uint32_t callable = 0;   // a Global or an object
  uint32_t arguments = 0;  // a tuple
  int64_t keywords = -1;   // a dict
  int64_t state = -1;
  std::vector<uint32_t> pairs = {};  // keys and values by turns that are set in it
};

class PickleGraph {
 public:
  /// Bounds what a small file could make of few bytes: what calls copy, and the value at the end.
  explicit PickleGraph(uint64_t max_bytes) : max_bytes_(max_bytes), left_to_add_(max_bytes) {}

  /// Adds a node and returns its number. Throws CheckpointError beyond the bound.
  uint32_t add(PickleNode node);
  uint32_t add_leaf(Value value) { return add({.leaf = std::move(value)}); }
  PickleNode& at(uint32_t index) { return nodes_[index]; }
  const PickleNode& at(uint32_t index) const { return nodes_[index]; }

  /// Builds the value below `root`. A container that stands in several places is copied to each. Throws
  /// CheckpointError beyond the bound, for a value that holds itself, and for a storage that stands alone.
  Value value(uint32_t root) const;

 private:
  struct Walk {
    uint64_t bytes_left;
    std::vector<bool> is_open;  // by node: it is being built
    int depth = 0;
  };
  Value build(uint32_t index, Walk& walk) const;
  Value build_content(const PickleNode& node, Walk& walk) const;
  std::vector<Value> build_items(const std::vector<uint32_t>& items, Walk& walk) const;
  Object::Pairs build_pairs(const std::vector<uint32_t>& items, Walk& walk) const;
  Dict build_dict(const PickleNode& node, Walk& walk) const;
  Object build_object(const PickleNode& node, Walk& walk) const;

  uint64_t max_bytes_;
  uint64_t left_to_add_;
  std::vector<PickleNode> nodes_;
};

}  // namespace deepspeed::checkpoint
