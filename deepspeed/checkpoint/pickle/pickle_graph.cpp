#include "deepspeed/checkpoint/pickle/pickle_graph.h"

#include <limits>
#include <unordered_map>

#include "deepspeed/base/error.h"
#include "deepspeed/checkpoint/pickle/dict_keys.h"
#include "deepspeed/checkpoint/pickle/pickle_bounds.h"

namespace deepspeed::checkpoint {
namespace {

/// Counts the bytes of a leaf beyond its Value.
uint64_t content_bytes(const Value& leaf) {
  if (const auto* text = leaf.get_if<std::string>()) return text->size();
  if (const auto* raw = leaf.get_if<std::vector<uint8_t>>()) return raw->size();
  if (const auto* array = leaf.get_if<ByteArray>()) return array->bytes.size();
  if (const auto* number = leaf.get_if<BigInt>()) return number->bytes.size();
  if (const auto* size = leaf.get_if<Size>()) return size->dims.size() * sizeof(int64_t);
  if (const auto* global = leaf.get_if<Global>()) return global->module.size() + global->name.size();
  return 0;
}

void spend(uint64_t cost, uint64_t& bytes_left) {
  if (cost > bytes_left) {
    raise<CheckpointError>("the pickle repeats its content endlessly, or far beyond its own size");
  }
  bytes_left -= cost;
}

const char* kind_text(PickleNode::Kind kind) {
  switch (kind) {
    case PickleNode::Kind::kList:
      return "a list";
    case PickleNode::Kind::kTuple:
      return "a tuple";
    case PickleNode::Kind::kDict:
    case PickleNode::Kind::kOrderedDict:
      return "a dict";
    case PickleNode::Kind::kObject:
      return "an object";
    default:
      return "a value";
  }
}

}  // namespace

uint32_t PickleGraph::add(PickleNode node) {
  if (nodes_.size() >= std::numeric_limits<uint32_t>::max()) raise<CheckpointError>("too many objects");
  spend(node.items.size() * sizeof(uint32_t) + content_bytes(node.leaf), left_to_add_);
  nodes_.push_back(std::move(node));
  return uint32_t(nodes_.size() - 1);
}

Value PickleGraph::value(uint32_t root) const {
  Walk walk{max_bytes_, std::vector<bool>(nodes_.size())};
  return build(root, walk);
}

std::vector<Value> PickleGraph::build_items(const std::vector<uint32_t>& items, Walk& walk) const {
  std::vector<Value> values;
  for (const uint32_t item : items) values.push_back(build(item, walk));
  return values;
}

Object::Pairs PickleGraph::build_pairs(const std::vector<uint32_t>& items, Walk& walk) const {
  Object::Pairs pairs;
  for (size_t index = 0; index + 1 < items.size(); index += 2) {
    Value key = build(items[index], walk);
    pairs.emplace_back(std::move(key), build(items[index + 1], walk));
  }
  return pairs;
}

Dict PickleGraph::build_dict(const PickleNode& node, Walk& walk) const {
  Dict dict(node.kind == PickleNode::Kind::kOrderedDict);
  std::unordered_map<std::string, size_t> positions;
  for (auto& [key, value] : build_pairs(node.items, walk)) {
    if (auto text = key_text(key)) {
      const auto [position, is_new] = positions.emplace(std::move(*text), dict.size());
      if (!is_new) {
        dict.items()[position->second].second = std::move(value);
        continue;
      }
    }
    dict.items().emplace_back(std::move(key), std::move(value));
  }
  return dict;
}

Object PickleGraph::build_object(const PickleNode& node, Walk& walk) const {
  Object object;
  if (const auto* name = at(node.callable).leaf.get_if<Global>()) {
    spend(content_bytes(at(node.callable).leaf), walk.bytes_left);
    object.module = name->module;
    object.name = name->name;
  } else {
    object.callable = std::make_shared<Value>(build(node.callable, walk));
  }
  object.making = node.making;
  object.arguments = build_items(at(node.arguments).items, walk);
  if (node.keywords >= 0) object.keywords = build_pairs(at(uint32_t(node.keywords)).items, walk);
  object.list_items = build_items(node.items, walk);
  object.dict_items = build_pairs(node.pairs, walk);
  if (node.state >= 0) object.state = std::make_shared<Value>(build(uint32_t(node.state), walk));
  return object;
}

Value PickleGraph::build(uint32_t index, Walk& walk) const {
  const PickleNode& node = at(index);
  spend(sizeof(Value) + content_bytes(node.leaf), walk.bytes_left);
  if (walk.is_open[index]) {
    raise<CheckpointError>(kind_text(node.kind), " holds itself, and so is nested deeper than ",
                           kMaxPickleDepth, " levels");
  }
  if (++walk.depth > kMaxPickleDepth) {
    raise<CheckpointError>("the pickle is nested deeper than ", kMaxPickleDepth, " levels");
  }
  walk.is_open[index] = true;
  Value value = build_content(node, walk);
  walk.is_open[index] = false;
  --walk.depth;
  return value;
}

Value PickleGraph::build_content(const PickleNode& node, Walk& walk) const {
  switch (node.kind) {
    case PickleNode::Kind::kLeaf:
      return node.leaf;
    case PickleNode::Kind::kList:
      return List(build_items(node.items, walk));
    case PickleNode::Kind::kTuple:
      return Tuple{build_items(node.items, walk)};
    case PickleNode::Kind::kSet:
      return Set{build_items(node.items, walk)};
    case PickleNode::Kind::kFrozenSet:
      return FrozenSet{build_items(node.items, walk)};
    case PickleNode::Kind::kDict:
    case PickleNode::Kind::kOrderedDict:
      return build_dict(node, walk);
    case PickleNode::Kind::kObject:
      return build_object(node, walk);
    case PickleNode::Kind::kStorage:
      break;
  }
  raise<CheckpointError>("a bare storage stands where a value is expected");
}

}  // namespace deepspeed::checkpoint
