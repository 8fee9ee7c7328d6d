#include "deepspeed/checkpoint/pickle/pickle_graph.h"

#include <limits>
#include <unordered_map>

#include "deepspeed/base/error.h"
#include "deepspeed/checkpoint/pickle/pickle_depth.h"

namespace deepspeed::checkpoint {
namespace {

uint64_t cost_of(const PickleNode& node) {
  uint64_t bytes = sizeof(Value);
  if (const auto* text = node.leaf.get_if<std::string>()) bytes += text->size();
  if (const auto* raw = node.leaf.get_if<std::vector<uint8_t>>()) bytes += raw->size();
  if (const auto* size = node.leaf.get_if<Size>()) bytes += size->dims.size() * sizeof(int64_t);
  return bytes;
}

/// Returns a text that is equal for equal keys.
std::string key_text(const Value& key) {
  if (const auto* text = key.get_if<std::string>()) return "text " + *text;
  if (const auto* number = key.get_if<int64_t>()) return message("int ", *number);
  if (const auto* number = key.get_if<double>()) return message("float ", *number);
  if (const auto* flag = key.get_if<bool>()) return message("bool ", *flag);
  if (key.is_none()) return "None";
  raise<CheckpointError>("a dict has a ", key.kind(), " as a key; texts, numbers, bool and None are read");
}

}  // namespace

uint32_t PickleGraph::add(PickleNode node) {
  if (nodes_.size() >= std::numeric_limits<uint32_t>::max()) raise<CheckpointError>("too many objects");
  nodes_.push_back(std::move(node));
  return uint32_t(nodes_.size() - 1);
}

Value PickleGraph::value(uint32_t root, uint64_t max_bytes) const {
  Budget budget{max_bytes};
  return build(root, budget);
}

std::vector<Value> PickleGraph::build_items(const std::vector<uint32_t>& items, Budget& budget) const {
  std::vector<Value> values;
  for (const uint32_t item : items) values.push_back(build(item, budget));
  return values;
}

Dict PickleGraph::build_dict(const PickleNode& node, Budget& budget) const {
  Dict dict(node.kind == PickleNode::Kind::kOrderedDict);
  std::unordered_map<std::string, size_t> positions;
  for (size_t index = 0; index + 1 < node.items.size(); index += 2) {
    Value key = build(node.items[index], budget);
    Value value = build(node.items[index + 1], budget);
    const auto [position, is_new] = positions.emplace(key_text(key), dict.size());
    if (is_new) {
      dict.items().emplace_back(std::move(key), std::move(value));
    } else {
      dict.items()[position->second].second = std::move(value);
    }
  }
  return dict;
}

Value PickleGraph::build(uint32_t index, Budget& budget) const {
  const PickleNode& node = at(index);
  const uint64_t cost = cost_of(node);
  if (cost > budget.bytes) {
    raise<CheckpointError>("the pickle repeats its content endlessly, or far beyond its own size");
  }
  budget.bytes -= cost;
  if (++budget.depth > kMaxPickleDepth) {
    raise<CheckpointError>("the pickle is nested deeper than ", kMaxPickleDepth, " levels");
  }
  Value value;
  switch (node.kind) {
    case PickleNode::Kind::kLeaf:
      value = node.leaf;
      break;
    case PickleNode::Kind::kList:
      value = List(build_items(node.items, budget));
      break;
    case PickleNode::Kind::kTuple:
      value = Tuple{build_items(node.items, budget)};
      break;
    case PickleNode::Kind::kSet:
      value = Set{build_items(node.items, budget)};
      break;
    case PickleNode::Kind::kDict:
    case PickleNode::Kind::kOrderedDict:
      value = build_dict(node, budget);
      break;
    case PickleNode::Kind::kObject: {
      Object object{node.module, node.name, build_items(node.items, budget), nullptr};
      if (node.state >= 0) object.state = std::make_shared<Value>(build(uint32_t(node.state), budget));
      value = std::move(object);
      break;
    }
    case PickleNode::Kind::kGlobal:
      raise<CheckpointError>("the class '", node.module, ".", node.name,
                             "' stands where a value is expected");
    case PickleNode::Kind::kStorage:
      raise<CheckpointError>("a bare storage stands where a value is expected");
  }
  --budget.depth;
  return value;
}

}  // namespace deepspeed::checkpoint
