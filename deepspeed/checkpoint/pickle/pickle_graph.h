// A graph holds the objects that a pickle builds while it is read. They refer to each other by number, since
// a pickle fills a container after others already hold it; at the end the graph becomes a Value, within
// bounds. One operation of a byte makes an object: what a node takes is kept small.
#pragma once

#include <cstdint>
#include <deque>
#include <vector>

#include <c10/core/Storage.h>

#include "deepspeed/checkpoint/pickle/value.h"

namespace deepspeed::checkpoint {

enum class PickleKind : uint8_t {
  kLeaf,
  kList,
  kTuple,
  kSet,
  kFrozenSet,
  kDict,
  kOrderedDict,
  kObject,
  kStorage
};

/// Holds the parts of an object; they are numbers of nodes, -1 where it has none.
struct PickleObject {
  Object::Making making = Object::Making::kCall;
  uint32_t callable = 0;   // a Global or an object
  uint32_t arguments = 0;  // a tuple
  int64_t keywords = -1;   // a dict
  int64_t state = -1;
  std::vector<uint32_t> items = {};  // are appended to it
  std::vector<uint32_t> pairs = {};  // keys and values by turns that are set in it
};

struct PickleStorage {
  at::Storage storage;
  at::ScalarType type = at::ScalarType::Undefined;  // Undefined: an untyped storage
};

class PickleGraph {
 public:
  using Items = std::vector<uint32_t>;

  /// Bounds what a small file could make of few bytes: what calls copy and look at, the tensors that they
  /// make, and the value at the end.
  explicit PickleGraph(uint64_t max_bytes);

  // These add a node and return its number. They throw CheckpointError beyond the bound.
  uint32_t add_leaf(Value value);
  uint32_t add_container(PickleKind kind, Items items = {});
  uint32_t add_object(PickleObject object);
  uint32_t add_storage(PickleStorage storage);

  PickleKind kind(uint32_t node) const { return nodes_[node].kind; }
  /// Returns the value of a leaf; None for any other node.
  const Value& leaf(uint32_t node) const;
  /// Returns the items of a container, a dict's keys and values by turns; none for any other node.
  const Items& items(uint32_t node) const;
  /// Returns the items of a container, to be added to.
  Items& items_to_fill(uint32_t node);
  PickleObject& object(uint32_t node) { return objects_[nodes_[node].place]; }
  const PickleStorage& storage(uint32_t node) const { return storages_[nodes_[node].place]; }

  /// Builds the value below `root`. A container that stands in several places is copied to each. Throws
  /// CheckpointError beyond the bound, for a value that holds itself, and for a storage that stands alone.
  Value value(uint32_t root) const;

 private:
  struct Node {
    PickleKind kind;
    uint32_t place;  // in the list of its kind
  };
  struct Walk {
    uint64_t bytes_left;
    std::vector<bool> is_open;  // by node: it is being built
    int depth = 0;
  };
  uint32_t add(PickleKind kind, size_t place);
  Value build(uint32_t node, Walk& walk) const;
  Value build_content(uint32_t node, Walk& walk) const;
  std::vector<Value> build_items(const Items& items, Walk& walk) const;
  Object::Pairs build_pairs(const Items& items, Walk& walk) const;
  Dict build_dict(uint32_t node, Walk& walk) const;
  Object build_object(const PickleObject& node, Walk& walk) const;

  uint64_t max_bytes_;
  uint64_t left_to_add_;
  std::vector<Node> nodes_;
  std::deque<Value> leaves_;  // None, True and False first, once for all
  std::deque<Items> items_;   // the first stands for all containers that nothing was put into
  std::deque<PickleObject> objects_;
  std::deque<PickleStorage> storages_;
};

}  // namespace deepspeed::checkpoint
