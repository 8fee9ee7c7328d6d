// Nodes are added in the order of the pickle, within a limit of bytes. At the end a walk over the graph turns
// them into values.
#include "deepspeed/checkpoint/pickle/pickle_graph.h"

#include <algorithm>
#include <bit>
#include <limits>
#include <string>
#include <string_view>
#include <unordered_map>

#include <c10/core/TensorImpl.h>

#include "deepspeed/base/error.h"
#include "deepspeed/checkpoint/pickle/names/pickle_names.h"
#include "deepspeed/checkpoint/pickle/pickle_bounds.h"
#include "deepspeed/checkpoint/pickle/value.h"

namespace deepspeed::checkpoint {
namespace {

/// Returns the bytes that a leaf holds outside of its Value.
uint64_t content_bytes(const Value& leaf) {
  if (const auto* text = leaf.get_if<std::string>()) return text->size();
  if (const auto* raw = leaf.get_if<std::vector<uint8_t>>()) return raw->size();
  if (const auto* array = leaf.get_if<ByteArray>()) return array->bytes.size();
  if (const auto* number = leaf.get_if<BigInt>()) return number->bytes.size();
  if (const auto* size = leaf.get_if<Size>()) return size->dims.size() * sizeof(int64_t);
  if (const auto* global = leaf.get_if<Global>()) return global->module.size() + global->name.size();
  return 0;
}

/// Returns the bytes that describe a tensor; 0 for other leaves. Five bytes of a pickle can create a tensor.
uint64_t tensor_bytes(const Value& leaf) {
  const auto* tensor = leaf.get_if<at::Tensor>();
  return tensor == nullptr ? 0 : sizeof(c10::TensorImpl) + 2 * sizeof(int64_t) * uint64_t(tensor->dim());
}

void spend(uint64_t cost, uint64_t& bytes_left) {
  if (cost > bytes_left) {
    raise<CheckpointError>("the pickle repeats its content endlessly, or far beyond its own size");
  }
  bytes_left -= cost;
}

const char* kind_text(PickleKind kind) {
  switch (kind) {
    case PickleKind::kList:
      return "a list";
    case PickleKind::kTuple:
      return "a tuple";
    case PickleKind::kDict:
    case PickleKind::kOrderedDict:
      return "a dict";
    case PickleKind::kObject:
      return "an object";
    default:
      return "a value";
  }
}

std::string_view bytes_view(const std::vector<uint8_t>& bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

std::string bits_text(double number) {
  return std::to_string(std::bit_cast<uint64_t>(number + 0.0));  // adding 0.0 makes -0.0 equal to 0.0
}

bool append_key(const Value& key, std::string& text);

/// Appends to `text` what append_key() would for a tuple of `items`: their number, then the text of each.
/// Returns false if append_key() does for one of them.
bool append_keys(const std::vector<Value>& items, std::string& text) {
  text += "tuple " + std::to_string(items.size()) + ":";
  bool is_known = true;
  for (const Value& item : items) is_known = append_key(item, text) && is_known;
  return is_known;
}

/// Appends to `text` a text by which keys of a dict are compared: equal keys of one type have equal texts.
/// The text shows where it ends, so that a tuple's text is made of its items' texts. Returns false for an
/// object, a frozenset or a tensor, because only Python can compare those. Throws CheckpointError for what
/// Python cannot hash: a list, dict, set or bytearray.
bool append_key(const Value& key, std::string& text) {
  const auto append = [&](const char* kind, std::string_view content) {
    text += message(kind, content.size(), ":");
    text += content;
    return true;
  };
  if (const auto* held = key.get_if<std::string>()) return append("text ", *held);
  if (const auto* number = key.get_if<int64_t>()) return append("int ", std::to_string(*number));
  if (const auto* number = key.get_if<double>()) return append("float ", bits_text(*number));
  if (const auto* number = key.get_if<std::complex<double>>())
    return append("complex ", bits_text(number->real()) + " " + bits_text(number->imag()));
  if (const auto* number = key.get_if<BigInt>()) return append("big int ", bytes_view(number->bytes));
  if (const auto* flag = key.get_if<bool>()) return append("bool ", *flag ? "1" : "0");
  if (key.is_none()) return append("None ", "");
  if (const auto* bytes = key.get_if<std::vector<uint8_t>>()) return append("bytes ", bytes_view(*bytes));
  if (const auto* global = key.get_if<Global>())
    return append("global ", global->module + "\n" + global->name);
  if (const auto* dtype = key.get_if<DType>()) return append("dtype ", dtype_name(dtype->type));
  if (const auto* tuple = key.get_if<Tuple>()) return append_keys(tuple->items, text);
  if (const auto* size = key.get_if<Size>()) return append_keys({size->dims.begin(), size->dims.end()}, text);
  if (key.get_if<List>() || key.get_if<Dict>() || key.get_if<Set>() || key.get_if<ByteArray>())
    raise<CheckpointError>("a dict has a ", key.kind(), " as a key, which Python cannot hash");
  return false;
}

}  // namespace

PickleGraph::PickleGraph(uint64_t max_bytes)
    : max_bytes_(max_bytes), left_to_add_(max_bytes), leaves_{None{}, true, false}, items_(1) {
  for (size_t place = 0; place < leaves_.size(); ++place) add(PickleKind::kLeaf, place);
}

uint32_t PickleGraph::add(PickleKind kind, size_t place) {
  if (nodes_.size() >= std::numeric_limits<uint32_t>::max()) raise<CheckpointError>("too many objects");
  nodes_.push_back({kind, uint32_t(place)});
  return uint32_t(nodes_.size() - 1);
}

uint32_t PickleGraph::add_leaf(Value value) {
  if (value.is_none()) return 0;
  if (const auto* flag = value.get_if<bool>()) return *flag ? 1 : 2;
  spend(content_bytes(value) + tensor_bytes(value), left_to_add_);
  leaves_.push_back(std::move(value));
  return add(PickleKind::kLeaf, leaves_.size() - 1);
}

uint32_t PickleGraph::add_container(PickleKind kind, Items items) {
  if (items.empty()) return add(kind, 0);
  spend(items.size() * sizeof(uint32_t), left_to_add_);
  items_.push_back(std::move(items));
  return add(kind, items_.size() - 1);
}

uint32_t PickleGraph::add_object(PickleObject object) {
  spend(items(object.arguments).size() * sizeof(uint32_t), left_to_add_);  // checking them took time
  objects_.push_back(std::move(object));
  return add(PickleKind::kObject, objects_.size() - 1);
}

uint32_t PickleGraph::add_storage(PickleStorage storage) {
  storages_.push_back(std::move(storage));
  return add(PickleKind::kStorage, storages_.size() - 1);
}

const Value& PickleGraph::leaf(uint32_t node) const {
  return leaves_[kind(node) == PickleKind::kLeaf ? nodes_[node].place : 0];
}

const PickleGraph::Items& PickleGraph::items(uint32_t node) const {
  const bool is_container = kind(node) >= PickleKind::kList && kind(node) <= PickleKind::kOrderedDict;
  return items_[is_container ? nodes_[node].place : 0];
}

PickleGraph::Items& PickleGraph::items_to_fill(uint32_t node) {
  uint32_t& place = nodes_[node].place;
  if (place == 0) {
    place = uint32_t(items_.size());
    items_.emplace_back();
  }
  return items_[place];
}

Value PickleGraph::value(uint32_t root) const {
  Walk walk{max_bytes_, std::vector<bool>(nodes_.size())};
  return build(root, walk);
}

std::vector<Value> PickleGraph::build_items(const Items& items, Walk& walk) const {
  std::vector<Value> values;
  values.reserve(std::min<uint64_t>(items.size(), walk.bytes_left / sizeof(Value)));
  for (const uint32_t item : items) values.push_back(build(item, walk));
  return values;
}

Object::Pairs PickleGraph::build_pairs(const Items& items, Walk& walk) const {
  Object::Pairs pairs;
  pairs.reserve(std::min<uint64_t>(items.size() / 2, walk.bytes_left / (2 * sizeof(Value))));
  for (size_t index = 0; index + 1 < items.size(); index += 2) {
    Value key = build(items[index], walk);
    pairs.emplace_back(std::move(key), build(items[index + 1], walk));
  }
  return pairs;
}

Dict PickleGraph::build_dict(uint32_t node, Walk& walk) const {
  Dict dict(kind(node) == PickleKind::kOrderedDict);
  std::unordered_map<std::string, size_t> positions;
  for (auto& [key, value] : build_pairs(items(node), walk)) {
    if (std::string text; append_key(key, text)) {
      const auto [position, is_new] = positions.emplace(std::move(text), dict.size());
      if (!is_new) {
        dict.items()[position->second].second = std::move(value);
        continue;
      }
    }
    dict.items().emplace_back(std::move(key), std::move(value));
  }
  return dict;
}

Object PickleGraph::build_object(const PickleObject& node, Walk& walk) const {
  spend(sizeof(Object), walk.bytes_left);
  Object object;
  if (const auto* name = leaf(node.callable).get_if<Global>()) {
    spend(content_bytes(leaf(node.callable)), walk.bytes_left);
    object.module = name->module;
    object.name = name->name;
  } else {
    object.callable = std::make_shared<Value>(build(node.callable, walk));
  }
  object.making = node.making;
  object.arguments = build_items(items(node.arguments), walk);
  if (node.keywords >= 0) object.keywords = build_pairs(items(uint32_t(node.keywords)), walk);
  object.list_items = build_items(node.items, walk);
  object.dict_items = build_pairs(node.pairs, walk);
  if (node.state >= 0) object.state = std::make_shared<Value>(build(uint32_t(node.state), walk));
  return object;
}

Value PickleGraph::build(uint32_t node, Walk& walk) const {
  spend(sizeof(Value) + content_bytes(leaf(node)), walk.bytes_left);
  if (walk.is_open[node]) {
    raise<CheckpointError>(kind_text(kind(node)), " holds itself, and so is nested deeper than ",
                           kMaxPickleDepth, " levels");
  }
  if (++walk.depth > kMaxPickleDepth) {
    raise<CheckpointError>("the pickle is nested deeper than ", kMaxPickleDepth, " levels");
  }
  if (kind(node) == PickleKind::kLeaf) {
    --walk.depth;
    return leaf(node);
  }
  walk.is_open[node] = true;
  Value value = build_content(node, walk);
  walk.is_open[node] = false;
  --walk.depth;
  return value;
}

Value PickleGraph::build_content(uint32_t node, Walk& walk) const {
  switch (kind(node)) {
    case PickleKind::kLeaf:
      return leaf(node);
    case PickleKind::kList:
      return List(build_items(items(node), walk));
    case PickleKind::kTuple:
      return Tuple{build_items(items(node), walk)};
    case PickleKind::kSet:
      return Set{build_items(items(node), walk)};
    case PickleKind::kFrozenSet:
      return FrozenSet{build_items(items(node), walk)};
    case PickleKind::kDict:
    case PickleKind::kOrderedDict:
      return build_dict(node, walk);
    case PickleKind::kObject:
      return build_object(objects_[nodes_[node].place], walk);
    case PickleKind::kStorage:
      break;
  }
  raise<CheckpointError>("a bare storage stands where a value is expected");
}

}  // namespace deepspeed::checkpoint
