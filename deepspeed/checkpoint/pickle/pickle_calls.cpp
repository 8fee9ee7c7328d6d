// Builds what the calls in a pickle would return, without running any code.
//
// A pickle names a global (add_global) and calls it with a tuple of arguments. build_call() looks the name up
// in a table of calls that stand for tensors or plain values: _rebuild_tensor_v2, OrderedDict, set, Size,
// bytes, complex. Any other call becomes an object that keeps the callable and its arguments. Objects made by
// __new__ (build_new) are always kept that way. A later state is attached to its object, or dropped if it
// belongs to an OrderedDict (set_state). Storages come from the archive by key (build_storage), so that
// several tensors can share one.
#include "deepspeed/checkpoint/pickle/pickle_calls.h"

#include <array>
#include <limits>

#include "deepspeed/base/error.h"
#include "deepspeed/checkpoint/pickle/names/pickle_names.h"
#include "deepspeed/checkpoint/pickle/pickle_bounds.h"
#include "deepspeed/checkpoint/pickle/tensor_view.h"

namespace deepspeed::checkpoint {
namespace {

using Kind = PickleKind;

/// Describes a call, by node numbers, whose name is in the table below.
struct Call {
  Global name;
  uint32_t callable = 0;
  uint32_t arguments = 0;
  const std::vector<uint32_t>& items;  // of the tuple `arguments`
};

[[noreturn]] void raise_arguments(const Global& callable) {
  raise<CheckpointError>("'", callable.module, ".", callable.name, "' has arguments of an unknown form");
}

/// Returns the name that a node holds, or null.
const Global* name_at(const PickleGraph& graph, uint32_t index) { return graph.leaf(index).get_if<Global>(); }

/// Keeps a call as data. Throws CheckpointError if no Python object could result from it.
uint32_t keep_call(PickleGraph& graph, PickleObject object) {
  const Global* name = name_at(graph, object.callable);
  if ((name == nullptr && graph.kind(object.callable) != Kind::kObject) ||
      graph.kind(object.arguments) != Kind::kTuple) {
    raise<CheckpointError>("a call that is not of a name or an object, with a tuple of arguments");
  }
  for (const uint32_t item : graph.items(object.arguments)) {
    if (graph.kind(item) != Kind::kStorage) continue;
    const std::string what = name == nullptr ? "an object" : "'" + name->module + "." + name->name + "'";
    raise<CheckpointError>("the file asks for ", what, ", a kind of tensor that cannot be read; convert it ",
                           "to a plain tensor and save it again");
  }
  return graph.add_object(std::move(object));
}
uint32_t keep_call(PickleGraph& graph, const Call& call) {
  return keep_call(graph, {.callable = call.callable, .arguments = call.arguments});
}

std::vector<int64_t> dims_of(const PickleGraph& graph, uint32_t index) {
  const Kind kind = graph.kind(index);
  if (kind == Kind::kLeaf) return graph.leaf(index).as_size();
  if (kind != Kind::kTuple && kind != Kind::kList) {
    raise<CheckpointError>("a tensor's sizes are not a tuple");
  }
  std::vector<int64_t> dims;
  for (const uint32_t item : graph.items(index)) dims.push_back(graph.leaf(item).as_int());
  return dims;
}

/// Builds a tensor from (storage, offset, sizes, strides, requires_grad, hooks[, dtype[, metadata]]).
uint32_t build_tensor(PickleGraph& graph, const Global& name, const std::vector<uint32_t>& items) {
  if (items.size() < 6 || graph.kind(items[0]) != Kind::kStorage) raise_arguments(name);
  const PickleStorage& storage = graph.storage(items[0]);
  at::ScalarType type = storage.type;
  if (name.name == "_rebuild_tensor_v3") {
    const auto* dtype = items.size() > 6 ? graph.leaf(items[6]).get_if<DType>() : nullptr;
    if (dtype == nullptr) raise_arguments(name);
    type = dtype->type;
  }
  if (type == at::ScalarType::Undefined) raise_arguments(name);
  const TensorView view{type, graph.leaf(items[1]).as_int(), dims_of(graph, items[2]),
                        dims_of(graph, items[3])};
  return graph.add_leaf(view_of_storage(storage.storage, view));
}
uint32_t build_tensor(PickleGraph& graph, const Call& call) {
  return build_tensor(graph, call.name, call.items);
}

bool is_plain_tensor_class(const Global& name) {
  return (name.module == "torch" && name.name == "Tensor") ||
         (name.module == "torch.nn.parameter" && name.name == "Parameter");
}

/// Builds a tensor from (call, class, its arguments, attributes). The attributes were added by Python code
/// and are ignored.
uint32_t build_tensor_of_type(PickleGraph& graph, const Call& call) {
  if (call.items.size() != 4) raise_arguments(call.name);
  const Global* inner = name_at(graph, call.items[0]);
  const Global* type = name_at(graph, call.items[1]);
  if (inner == nullptr || inner->module != "torch._utils" || !inner->name.starts_with("_rebuild_tensor_v") ||
      type == nullptr || graph.kind(call.items[2]) != Kind::kTuple) {
    raise_arguments(call.name);
  }
  if (!is_plain_tensor_class(*type)) {
    raise<CheckpointError>("the file asks for '", type->module, ".", type->name,
                           "', a kind of tensor that cannot be read; convert it to a plain tensor and save ",
                           "it again");
  }
  return build_tensor(graph, Global(*inner), graph.items(call.items[2]));
}

uint32_t build_parameter(PickleGraph& graph, const Call& call) {
  if (call.items.empty()) raise_arguments(call.name);
  graph.leaf(call.items[0]).as_tensor();
  return call.items[0];
}

uint32_t build_ordered_dict(PickleGraph& graph, const Call& call) {
  if (!call.items.empty()) raise_arguments(call.name);
  return graph.add_container(Kind::kOrderedDict);
}

uint32_t build_set(PickleGraph& graph, const Call& call) {
  const Kind kind = call.name.name == "set" ? Kind::kSet : Kind::kFrozenSet;
  if (call.items.empty()) return graph.add_container(kind);
  const Kind given = graph.kind(call.items[0]);
  if (call.items.size() != 1 || (given != Kind::kList && given != Kind::kTuple)) raise_arguments(call.name);
  return graph.add_container(kind, graph.items(call.items[0]));
}

uint32_t build_size(PickleGraph& graph, const Call& call) {
  if (call.items.size() != 1) raise_arguments(call.name);
  return graph.add_leaf(Size{dims_of(graph, call.items[0])});
}

/// Converts UTF-8 text to its Latin-1 bytes.
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

uint32_t build_encoded(PickleGraph& graph, const Call& call) {
  if (call.items.size() != 2 || graph.leaf(call.items[1]).as_string() != "latin1") raise_arguments(call.name);
  return graph.add_leaf(Value::bytes(latin1_bytes(graph.leaf(call.items[0]).as_string())));
}

/// Builds the result of `bytes()`, which is how Python writes empty bytes.
uint32_t build_empty_bytes(PickleGraph& graph, const Call& call) {
  return call.items.empty() ? graph.add_leaf(Value::bytes({})) : keep_call(graph, call);
}

uint32_t build_bytearray(PickleGraph& graph, const Call& call) {
  if (call.items.empty()) return graph.add_leaf(ByteArray{});
  const auto* bytes = graph.leaf(call.items[0]).get_if<std::vector<uint8_t>>();
  if (call.items.size() != 1 || bytes == nullptr) return keep_call(graph, call);
  return graph.add_leaf(ByteArray{*bytes});
}

uint32_t build_complex(PickleGraph& graph, const Call& call) {
  if (call.items.size() != 2) return keep_call(graph, call);
  const auto* real = graph.leaf(call.items[0]).get_if<double>();
  const auto* imaginary = graph.leaf(call.items[1]).get_if<double>();
  if (real == nullptr || imaginary == nullptr) return keep_call(graph, call);
  return graph.add_leaf(std::complex<double>(*real, *imaginary));
}

/// Builds the name of a class member. Older protocols write it as `getattr(class, name)`.
uint32_t build_attribute(PickleGraph& graph, const Call& call) {
  if (call.items.size() != 2) return keep_call(graph, call);
  const Global* outer = name_at(graph, call.items[0]);
  const auto* attribute = graph.leaf(call.items[1]).get_if<std::string>();
  if (outer == nullptr || attribute == nullptr) return keep_call(graph, call);
  return add_global(graph, {outer->module, outer->name + "." + *attribute});
}

struct KnownCall {
  std::string_view module;
  std::string_view name;
  uint32_t (*build)(PickleGraph&, const Call&);
};

constexpr auto kCalls = std::to_array<KnownCall>({
    {"torch._utils", "_rebuild_tensor_v2", build_tensor},
    {"torch._utils", "_rebuild_tensor_v3", build_tensor},
    {"torch._utils", "_rebuild_parameter", build_parameter},
    {"torch._utils", "_rebuild_parameter_with_state", build_parameter},
    {"torch._tensor", "_rebuild_from_type_v2", build_tensor_of_type},
    {"torch", "Size", build_size},
    {"collections", "OrderedDict", build_ordered_dict},
    {"builtins", "set", build_set},
    {"builtins", "frozenset", build_set},
    {"_codecs", "encode", build_encoded},
    {"builtins", "bytes", build_empty_bytes},
    {"builtins", "bytearray", build_bytearray},
    {"builtins", "complex", build_complex},
    {"builtins", "getattr", build_attribute},
});

}  // namespace

uint32_t add_global(PickleGraph& graph, Global name) {
  if (!is_pickle_name(name.module) || !is_pickle_name(name.name)) {
    raise<CheckpointError>(
        "the name of a class or a function is empty, has several lines, or is longer than ", kMaxPickleName,
        " bytes");
  }
  if (name.module == "torch") {
    if (const auto type = dtype_of_name(name.name)) return graph.add_leaf(DType{*type});
  }
  return graph.add_leaf(std::move(name));
}

uint32_t build_call(PickleGraph& graph, uint32_t callable, uint32_t arguments) {
  const Global* name = name_at(graph, callable);
  if (name != nullptr && graph.kind(arguments) == Kind::kTuple) {
    for (const KnownCall& known : kCalls) {
      if (known.module == name->module && known.name == name->name)
        return known.build(graph, {*name, callable, arguments, graph.items(arguments)});
    }
  }
  return keep_call(graph, {.callable = callable, .arguments = arguments});
}

uint32_t build_new(PickleGraph& graph, uint32_t callable, uint32_t arguments, int64_t keywords) {
  if (keywords >= 0 && graph.kind(uint32_t(keywords)) != Kind::kDict)
    raise<CheckpointError>("an object is made with keywords that are not a dict");
  return keep_call(graph, {.making = keywords < 0 ? Object::Making::kNew : Object::Making::kNewWithKeywords,
                           .callable = callable,
                           .arguments = arguments,
                           .keywords = keywords});
}

void set_state(PickleGraph& graph, uint32_t object, uint32_t state) {
  // Attributes of a state_dict itself (_metadata: module versions) are not needed.
  if (graph.kind(object) == Kind::kOrderedDict) return;
  if (graph.kind(object) != Kind::kObject)
    raise<CheckpointError>("a value that is no object is given a state");
  PickleObject& node = graph.object(object);
  if (node.state >= 0) raise<CheckpointError>("an object is given a state twice");
  node.state = state;
}

uint32_t build_storage(PickleGraph& graph, uint32_t persistent_id, const StorageLoader& load) {
  const std::vector<uint32_t>& id = graph.items(persistent_id);
  if (graph.kind(persistent_id) != Kind::kTuple || id.size() != 5 ||
      graph.leaf(id[0]).as_string() != "storage" || name_at(graph, id[1]) == nullptr) {
    raise<CheckpointError>("a persistent id that is not a storage");
  }
  const auto& [module, name] = *name_at(graph, id[1]);
  const auto type = module == "torch" ? dtype_of_storage_class(name) : std::nullopt;
  if (!type && !(module == "torch.storage" && name == "UntypedStorage"))
    raise<CheckpointError>("'", name, "' is not a storage");
  const int64_t numel = graph.leaf(id[4]).as_int();
  const int64_t item_size = type ? int64_t(c10::elementSize(*type)) : 1;
  if (numel < 0 || numel > std::numeric_limits<int64_t>::max() / item_size) {
    raise<CheckpointError>("a storage of ", numel, " elements");
  }
  const std::string& key = graph.leaf(id[2]).as_string();
  if (key.size() > kMaxPickleName)
    raise<CheckpointError>("the name of a storage is longer than ", kMaxPickleName, " bytes");
  at::Storage storage = load(key, numel * item_size);
  return graph.add_storage({std::move(storage), type.value_or(at::ScalarType::Undefined)});
}

}  // namespace deepspeed::checkpoint
