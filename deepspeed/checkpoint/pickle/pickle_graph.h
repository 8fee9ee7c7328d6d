// Holds the objects of a pickle while it is read. Objects refer to each other by number, because a pickle may
// fill a container after others already hold it. At the end the graph becomes a Value, within limits. A
// single byte of a pickle can create an object, so nodes are kept small.
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

/// Holds the parts of an object as node numbers. -1 means that there is none.
struct PickleObject {
  Object::Making making = Object::Making::kCall;
  uint32_t callable = 0;   // a Global or an object
  uint32_t arguments = 0;  // a tuple
  int64_t keywords = -1;   // a dict
  int64_t state = -1;
  std::vector<uint32_t> items = {};  // appended to the object
  std::vector<uint32_t> pairs = {};  // alternating keys and values that are set in the object
};

struct PickleStorage {
  at::Storage storage;
  at::ScalarType type = at::ScalarType::Undefined;  // Undefined: an untyped storage
};

class PickleGraph {
 public:
  using Items = std::vector<uint32_t>;

  /// Makes an empty graph. `max_bytes` limits what a small file can create: the data that nodes hold, and
  /// separately the final value.
  explicit PickleGraph(uint64_t max_bytes);

  // These add a node and return its number. They throw CheckpointError beyond the limit.
  uint32_t add_leaf(Value value);
  uint32_t add_container(PickleKind kind, Items items = {});
  uint32_t add_object(PickleObject object);
  uint32_t add_storage(PickleStorage storage);

  PickleKind kind(uint32_t node) const { return nodes_[node].kind; }
  /// Returns the value of a leaf; None for any other node.
  const Value& leaf(uint32_t node) const;
  /// Returns the items of a container; for a dict, alternating keys and values. Other nodes have none.
  const Items& items(uint32_t node) const;
  /// Returns the items of a container so that more can be added.
  Items& items_to_fill(uint32_t node);
  PickleObject& object(uint32_t node) { return objects_[nodes_[node].place]; }
  const PickleStorage& storage(uint32_t node) const { return storages_[nodes_[node].place]; }

  /// Builds the value below `root`. A container with several holders is copied for each. Throws
  /// CheckpointError beyond `max_bytes`, for a value that nests too deeply or contains itself, and for a bare
  /// storage.
  Value value(uint32_t root) const;

 private:
  struct Node {
    PickleKind kind;
    uint32_t place;  // index in the list of its kind
  };
  struct Walk {
    uint64_t bytes_left;
    std::vector<bool> is_open;  // by node: whether it is being built
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
  std::deque<Value> leaves_;  // starts with None, True and False, which are shared
  std::deque<Items> items_;   // the first is shared by all empty containers
  std::deque<PickleObject> objects_;
  std::deque<PickleStorage> storages_;
};

}  // namespace deepspeed::checkpoint
