// Answers the calls of a pickle from a fixed list of names, by building values; no code runs.
//
// The pickle first names a global (add_global): a name of the list becomes a node, any other is refused by
// that name. A call of it with its arguments (build_call) goes to one function for each known callable:
// tensors
// (_rebuild_tensor_v2, _rebuild_tensor_v3, _rebuild_parameter), OrderedDict, set, Size, bytes, and objects of
// the known classes, which keep their arguments. A later state is attached to an object or dropped
// (set_state). Storages come from the archive by their key (build_storage), so that several tensors share
// one.
#include "deepspeed/checkpoint/pickle/pickle_calls.h"

#include <array>
#include <limits>

#include "deepspeed/base/error.h"
#include "deepspeed/checkpoint/pickle/pickle_names.h"
#include "deepspeed/checkpoint/pickle/tensor_view.h"

namespace deepspeed::checkpoint {
namespace {

using Kind = PickleNode::Kind;

[[noreturn]] void raise_arguments(const PickleNode& callable) {
  raise<CheckpointError>("'", callable.module, ".", callable.name, "' has arguments of an unknown form");
}

constexpr auto kCalls = std::to_array<std::pair<std::string_view, std::string_view>>({
    {"collections", "OrderedDict"},
    {"builtins", "set"},
    {"builtins", "frozenset"},
    {"_codecs", "encode"},
    {"torch", "Size"},
    {"torch", "device"},
    {"torch._utils", "_rebuild_tensor_v2"},
    {"torch._utils", "_rebuild_tensor_v3"},
    {"torch._utils", "_rebuild_parameter"},
    {"torch._utils", "_rebuild_parameter_with_state"},
    {"torch._tensor", "_rebuild_from_type_v2"},
    {"torch", "Tensor"},
    {"torch.nn.parameter", "Parameter"},
    {"torch.storage", "UntypedStorage"},
});

bool is_call(std::string_view module, std::string_view name) {
  for (const auto& call : kCalls) {
    if (call == std::pair(module, name)) return true;
  }
  return module == "torch" && dtype_of_storage_class(name).has_value();
}

std::vector<int64_t> dims_of(const PickleGraph& graph, uint32_t index) {
  const PickleNode& node = graph.at(index);
  if (node.kind == Kind::kLeaf) return node.leaf.as_size();
  if (node.kind != Kind::kTuple && node.kind != Kind::kList) {
    raise<CheckpointError>("a tensor's sizes are not a tuple");
  }
  std::vector<int64_t> dims;
  for (const uint32_t item : node.items) dims.push_back(graph.at(item).leaf.as_int());
  return dims;
}

/// Builds a tensor from (storage, offset, sizes, strides, requires_grad, hooks[, dtype[, metadata]]).
uint32_t build_tensor(PickleGraph& graph, const PickleNode& callable, const std::vector<uint32_t>& items) {
  if (items.size() < 6 || graph.at(items[0]).kind != Kind::kStorage) raise_arguments(callable);
  const PickleNode& storage = graph.at(items[0]);
  at::ScalarType type = storage.storage_type;
  if (callable.name == "_rebuild_tensor_v3") {
    const auto* dtype = items.size() > 6 ? graph.at(items[6]).leaf.get_if<DType>() : nullptr;
    if (dtype == nullptr) raise_arguments(callable);
    type = dtype->type;
  }
  if (type == at::ScalarType::Undefined) raise_arguments(callable);
  const TensorView view{type, graph.at(items[1]).leaf.as_int(), dims_of(graph, items[2]),
                        dims_of(graph, items[3])};
  return graph.add_leaf(view_of_storage(storage.storage, view));
}

/// Builds a tensor from (call, class, its arguments, attributes). Python code hung the attributes on it; a
/// reader has no use for them.
uint32_t build_tensor_of_type(PickleGraph& graph, const PickleNode& callable,
                              const std::vector<uint32_t>& items) {
  if (items.size() != 4) raise_arguments(callable);
  const PickleNode call = graph.at(items[0]);
  if (call.kind != Kind::kGlobal || !call.name.starts_with("_rebuild_tensor") ||
      graph.at(items[2]).kind != Kind::kTuple)
    raise_arguments(callable);
  const std::vector<uint32_t> arguments = graph.at(items[2]).items;
  return build_tensor(graph, call, arguments);
}

/// Converts a UTF-8 text to its Latin-1 bytes.
std::vector<uint8_t> latin1_bytes(const std::string& text) {
  std::vector<uint8_t> bytes;
  for (size_t at = 0; at < text.size(); ++at) {
    const auto lead = uint8_t(text[at]);
    if (lead < 0x80) {
      bytes.push_back(lead);
    } else if ((lead == 0xC2 || lead == 0xC3) && at + 1 < text.size()) {
      bytes.push_back(uint8_t((lead << 6) | (uint8_t(text[++at]) & 0x3F)));
    } else {
      raise<CheckpointError>("a text that should hold Latin-1 bytes holds other characters");
    }
  }
  return bytes;
}

uint32_t build_set(PickleGraph& graph, const PickleNode& callable, const std::vector<uint32_t>& items) {
  PickleNode set{.kind = Kind::kSet};
  if (!items.empty()) {
    const PickleNode& list = graph.at(items[0]);
    if (items.size() != 1 || (list.kind != Kind::kList && list.kind != Kind::kTuple))
      raise_arguments(callable);
    set.items = list.items;
  }
  return graph.add(std::move(set));
}

uint32_t build_bytes(PickleGraph& graph, const PickleNode& callable, const std::vector<uint32_t>& items) {
  if (items.size() != 2 || graph.at(items[1]).leaf.as_string() != "latin1") raise_arguments(callable);
  return graph.add_leaf(Value::bytes(latin1_bytes(graph.at(items[0]).leaf.as_string())));
}

}  // namespace

uint32_t add_global(PickleGraph& graph, std::string module, std::string name) {
  if (module == "__builtin__") module = "builtins";  // Python 2's name, which protocol 2 writes
  if (module == "torch") {
    if (const auto type = dtype_of_name(name)) return graph.add_leaf(DType{*type});
  }
  if (!is_call(module, name) && !is_known_class(module, name)) {
    raise<CheckpointError>("the file asks for '", module, ".", name,
                           "', which is not among the names that a checkpoint may hold; nothing was run");
  }
  return graph.add({.kind = Kind::kGlobal, .module = std::move(module), .name = std::move(name)});
}

uint32_t build_call(PickleGraph& graph, uint32_t callable_index, uint32_t arguments) {
  // These are copies, since adding a node moves the others.
  const PickleNode callable = graph.at(callable_index);
  if (callable.kind != Kind::kGlobal || graph.at(arguments).kind != Kind::kTuple) {
    raise<CheckpointError>("a call that is not a known name with a tuple of arguments");
  }
  const std::vector<uint32_t> items = graph.at(arguments).items;
  if (callable.name == "OrderedDict") {
    if (!items.empty()) raise_arguments(callable);
    return graph.add({.kind = Kind::kOrderedDict});
  }
  if (callable.module == "builtins") return build_set(graph, callable, items);
  if (callable.module == "_codecs") return build_bytes(graph, callable, items);
  if (callable.name.starts_with("_rebuild_tensor")) return build_tensor(graph, callable, items);
  if (callable.name.starts_with("_rebuild_parameter")) {
    if (items.empty()) raise_arguments(callable);
    graph.at(items[0]).leaf.as_tensor();
    return items[0];
  }
  if (callable.module == "torch" && callable.name == "Size") {
    if (items.size() != 1) raise_arguments(callable);
    return graph.add_leaf(Size{dims_of(graph, items[0])});
  }
  if (callable.name == "_rebuild_from_type_v2") return build_tensor_of_type(graph, callable, items);
  if (callable.name.ends_with("Storage") || callable.name == "Tensor" || callable.name == "Parameter")
    raise_arguments(callable);
  return graph.add({.kind = Kind::kObject, .items = items, .module = callable.module, .name = callable.name});
}

void set_state(PickleGraph& graph, uint32_t object, uint32_t state) {
  PickleNode& node = graph.at(object);
  // A reader has no use for the attributes of a state_dict itself (its _metadata: module versions).
  if (node.kind == Kind::kOrderedDict) return;
  if (node.kind != Kind::kObject) raise<CheckpointError>("a value that is no object is given a state");
  node.state = state;
}

uint32_t build_storage(PickleGraph& graph, uint32_t persistent_id, const StorageLoader& load) {
  const PickleNode id = graph.at(persistent_id);
  if (id.kind != Kind::kTuple || id.items.size() != 5 ||
      graph.at(id.items[0]).leaf.as_string() != "storage" || graph.at(id.items[1]).kind != Kind::kGlobal) {
    raise<CheckpointError>("a persistent id that is not a storage");
  }
  const std::string& name = graph.at(id.items[1]).name;
  const auto type = dtype_of_storage_class(name);
  if (!type && name != "UntypedStorage") raise<CheckpointError>("'", name, "' is not a storage");
  const int64_t numel = graph.at(id.items[4]).leaf.as_int();
  const int64_t item_size = type ? int64_t(c10::elementSize(*type)) : 1;
  if (numel < 0 || numel > std::numeric_limits<int64_t>::max() / item_size) {
    raise<CheckpointError>("a storage of ", numel, " elements");
  }
  at::Storage storage = load(graph.at(id.items[2]).leaf.as_string(), numel * item_size);
  return graph.add({.kind = Kind::kStorage,
                    .storage = std::move(storage),
                    .storage_type = type.value_or(at::ScalarType::Undefined)});
}

}  // namespace deepspeed::checkpoint
