// Writes a value in one walk over it, with the operations that Python's own pickler would choose.
//
// write() dispatches by the kind of value. Each put() emits operations that leave exactly one object on the
// reader's stack. An object is written as its callable and arguments, the call, its items, and its state.
// Strings, globals and tensors are memoized at first use and recalled later. A tensor that occurs twice, such
// as a tied weight, is therefore one object after reading. Numbers take the shortest form that holds them.
// Nesting is limited to what our reader accepts.
#include "deepspeed/checkpoint/pickle/pickler.h"

#include <bit>
#include <limits>
#include <unordered_map>

#include "deepspeed/base/error.h"
#include "deepspeed/base/text.h"
#include "deepspeed/checkpoint/pickle/names/pickle_names.h"
#include "deepspeed/checkpoint/pickle/pickle_bounds.h"
#include "deepspeed/checkpoint/pickle/pickle_opcodes.h"

namespace deepspeed::checkpoint {
namespace {

/// Returns whether Python accepts the text. That is UTF-8 with lone surrogates allowed, as Python's pickle
/// writes them.
bool is_text_of_python(const std::string& text) {
  if (is_utf8(text)) return true;
  std::string rest;  // with '?' for each surrogate, which is ED A0..BF 80..BF
  for (size_t at = 0; at < text.size(); ++at) {
    const auto byte = [&](size_t index) { return index < text.size() ? uint8_t(text[index]) : uint8_t{0}; };
    const bool is_surrogate =
        byte(at) == 0xED && byte(at + 1) >= 0xA0 && byte(at + 1) <= 0xBF && (byte(at + 2) & 0xC0) == 0x80;
    rest += is_surrogate ? '?' : text[at];
    if (is_surrogate) at += 2;
  }
  return is_utf8(rest);
}

class Pickler {
 public:
  explicit Pickler(const StoragePlan& plan) : plan_(plan) {}

  std::string run(const Value& value) {
    op(Op::kProto);
    byte(2);
    write(value);
    op(Op::kStop);
    return std::move(out_);
  }

 private:
  void op(Op code) { out_.push_back(static_cast<char>(code)); }
  void byte(uint8_t value) { out_.push_back(static_cast<char>(value)); }
  template <class T>
  void little_endian(T value) {
    for (size_t index = 0; index < sizeof(T); ++index) byte(uint8_t(uint64_t(value) >> (8 * index)));
  }

  void write(const Value& value) {
    if (++depth_ > kMaxPickleDepth) {
      raise<UsageError>("the value", place().substr(0, 200), " is nested deeper than ", kMaxPickleDepth,
                        " levels");
    }
    std::visit([this](const auto& content) { put(content); }, value.data());
    --depth_;
  }

  template <class T>
  void put(const Boxed<T>& box) {
    put(*box.get());
  }
  void put(const None&) { op(Op::kNone); }
  void put(bool value) { op(value ? Op::kNewTrue : Op::kNewFalse); }
  void put(double value) {
    op(Op::kBinFloat);
    const auto bits = std::bit_cast<uint64_t>(value);
    for (int shift = 56; shift >= 0; shift -= 8) byte(uint8_t(bits >> shift));
  }
  void put(int64_t value) {
    if (value >= 0 && value <= 0xFF) {
      op(Op::kBinInt1);
      byte(uint8_t(value));
    } else if (value >= 0 && value <= 0xFFFF) {
      op(Op::kBinInt2);
      little_endian(uint16_t(value));
    } else if (value >= std::numeric_limits<int32_t>::min() && value <= std::numeric_limits<int32_t>::max()) {
      op(Op::kBinInt);
      little_endian(int32_t(value));
    } else {
      op(Op::kLong1);
      byte(8);
      little_endian(value);
    }
  }
  void put(const std::string& text) {
    if (recall("text " + text)) return;
    if (!is_text_of_python(text))
      raise<UsageError>("a text", place(), " is not UTF-8; use Value::bytes for raw bytes");
    if (text.size() > std::numeric_limits<uint32_t>::max())
      raise<UsageError>("a text", place(), " exceeds 4 GiB");
    op(Op::kBinUnicode);
    little_endian(uint32_t(text.size()));
    out_ += text;
    memoize("text " + text);
  }
  /// Writes bytes as Latin-1 text and a call that converts it. Python does the same, because protocol 2 has
  /// no bytes.
  void put(const std::vector<uint8_t>& bytes) {
    std::string text;
    for (const uint8_t value : bytes) {
      if (value < 0x80) {
        text.push_back(char(value));
      } else {
        text.push_back(char(0xC0 | (value >> 6)));
        text.push_back(char(0x80 | (value & 0x3F)));
      }
    }
    global("_codecs", "encode");
    put(text);
    put(std::string("latin1"));
    op(Op::kTuple2);
    op(Op::kReduce);
  }
  void put(const List& list) {
    op(Op::kEmptyList);
    append_items(list);
  }
  void put(const Tuple& tuple) { put_tuple(tuple.items); }
  void put(const Set& set) { put_set("set", set.items); }
  void put(const FrozenSet& set) { put_set("frozenset", set.items); }
  void put_set(const char* name, const std::vector<Value>& items) {
    global("__builtin__", name);
    put(List(items));
    op(Op::kTuple1);
    op(Op::kReduce);
  }
  void put(const ByteArray& array) {
    global("__builtin__", "bytearray");
    put(array.bytes);
    op(Op::kTuple1);
    op(Op::kReduce);
  }
  void put(const std::complex<double>& number) {
    global("__builtin__", "complex");
    put(number.real());
    put(number.imag());
    op(Op::kTuple2);
    op(Op::kReduce);
  }
  void put(const BigInt& number) {
    const size_t size = number.bytes.size();
    if (size > std::numeric_limits<int32_t>::max()) raise<UsageError>("an integer exceeds 2 GiB");
    if (size <= 0xFF) {
      op(Op::kLong1);
      byte(uint8_t(size));
    } else {
      op(Op::kLong4);
      little_endian(uint32_t(size));
    }
    out_.append(number.bytes.begin(), number.bytes.end());
  }
  void put(const Dict& dict) {
    if (dict.ordered()) {
      global("collections", "OrderedDict");
      op(Op::kEmptyTuple);
      op(Op::kReduce);
    } else {
      op(Op::kEmptyDict);
    }
    set_pairs(dict.items());
  }
  void put(const Size& size) {
    global("torch", "Size");
    put_dims(size.dims);
    op(Op::kTuple1);
    op(Op::kReduce);
  }
  void put(const DType& dtype) {
    const std::string_view name = dtype_name(dtype.type);
    if (name.empty()) raise<UsageError>("a file cannot hold the dtype ", at::toString(dtype.type), place());
    global("torch", std::string(name));
  }
  void put(const Global& name) { global(name.module, name.name); }
  void put(const Object& object) {
    if (object.callable) {
      write(*object.callable);
    } else {
      global(object.module, object.name);
    }
    put_tuple(object.arguments);
    put_making(object);
    append_items(object.list_items);
    set_pairs(object.dict_items);
    if (object.state == nullptr) return;
    write(*object.state);
    op(Op::kBuild);
  }
  void put_making(const Object& object) {
    switch (object.making) {
      case Object::Making::kCall:
        return op(Op::kReduce);
      case Object::Making::kNew:
        return op(Op::kNewObj);
      case Object::Making::kNewWithKeywords:
        op(Op::kEmptyDict);
        set_pairs(object.keywords);
        return op(Op::kNewObjEx);  // belongs to protocol 4, but Python reads it in any file
    }
  }
  void put(const at::Tensor& tensor) {
    const std::string name = message("tensor ", tensor.unsafeGetTensorImpl());
    if (recall(name)) return;
    const StoragePlan::Placement& placement = plan_.placement(tensor);
    const at::Tensor& record = plan_.records()[placement.record];
    const bool typed = !storage_class(tensor.scalar_type()).empty();
    global("torch._utils", typed ? "_rebuild_tensor_v2" : "_rebuild_tensor_v3");
    op(Op::kMark);
    put_storage(placement.record, record, typed);
    put(placement.offset);
    put_dims(placement.sizes);
    put_dims(placement.strides);
    put(false);
    put(Dict(/*ordered=*/true));  // no backward hooks
    if (!typed) put(DType{tensor.scalar_type()});
    op(Op::kTuple);
    op(Op::kReduce);
    memoize(name);
  }
  void put_storage(size_t number, const at::Tensor& record, bool typed) {
    op(Op::kMark);
    put(std::string("storage"));
    if (typed) {
      global("torch", std::string(storage_class(record.scalar_type())));
    } else {
      global("torch.storage", "UntypedStorage");
    }
    put(std::to_string(number));
    put(std::string("cpu"));
    put(typed ? record.numel() : int64_t(record.nbytes()));
    op(Op::kTuple);
    op(Op::kBinPersId);
  }

  void append_items(const std::vector<Value>& items) {
    if (items.empty()) return;
    op(Op::kMark);
    for (const Value& item : items) write(item);
    op(Op::kAppends);
  }
  void set_pairs(const Object::Pairs& pairs) {
    if (pairs.empty()) return;
    op(Op::kMark);
    for (const auto& [key, value] : pairs) {
      write(key);
      keys_.push_back(&key);
      write(value);
      keys_.pop_back();
    }
    op(Op::kSetItems);
  }
  /// Returns the dict keys that lead to the value being written, for messages.
  std::string place() const {
    std::string path;
    for (const Value* key : keys_) {
      const auto* text = key->get_if<std::string>();
      path += (path.empty() ? "" : ".") + (text == nullptr ? "(" + key->kind() + ")" : as_utf8(*text));
    }
    return path.empty() ? "" : " under the key '" + path + "'";
  }
  void put_tuple(const std::vector<Value>& items) {
    begin_tuple(items.size());
    for (const Value& item : items) write(item);
    end_tuple(items.size());
  }
  void put_dims(const std::vector<int64_t>& dims) {
    begin_tuple(dims.size());
    for (const int64_t dim : dims) put(dim);
    end_tuple(dims.size());
  }
  void begin_tuple(size_t size) {
    if (size > 3) op(Op::kMark);
  }
  void end_tuple(size_t size) {
    constexpr Op kOps[] = {Op::kEmptyTuple, Op::kTuple1, Op::kTuple2, Op::kTuple3};
    op(size > 3 ? Op::kTuple : kOps[size]);
  }

  void global(const std::string& module, const std::string& name) {
    const std::string full_name = "global " + module + "\n" + name;
    if (recall(full_name)) return;
    check_name(module);
    check_name(name);
    const size_t dot = name.rfind('.');
    if (dot == std::string::npos) {
      op(Op::kGlobal);
      out_ += module + "\n" + name + "\n";
    } else {  // protocol 2 reaches a member of a class only through getattr
      global("__builtin__", "getattr");
      global(module, name.substr(0, dot));
      put(name.substr(dot + 1));
      op(Op::kTuple2);
      op(Op::kReduce);
    }
    memoize(full_name);
  }
  static void check_name(const std::string& name) {
    if (is_pickle_name(name) && is_utf8(name)) return;
    raise<UsageError>("a class or a function cannot have the name '", name.substr(0, 80),
                      "', expected at most ", kMaxPickleName, " bytes of UTF-8 in one line");
  }

  /// Writes a reference to the object memoized as `name`. Returns false, writing nothing, if there is none.
  bool recall(const std::string& name) {
    const auto found = memo_.find(name);
    if (found == memo_.end()) return false;
    memo_operation(Op::kBinGet, Op::kLongBinGet, found->second);
    return true;
  }
  void memoize(std::string name) {
    const auto index = uint32_t(memo_.size());
    memo_.emplace(std::move(name), index);
    memo_operation(Op::kBinPut, Op::kLongBinPut, index);
  }
  void memo_operation(Op short_form, Op long_form, uint32_t index) {
    if (index <= 0xFF) {
      op(short_form);
      byte(uint8_t(index));
    } else {
      op(long_form);
      little_endian(index);
    }
  }

  const StoragePlan& plan_;
  std::string out_;
  std::unordered_map<std::string, uint32_t> memo_;
  std::vector<const Value*> keys_;  // of the dicts being written
  int depth_ = 0;
};

}  // namespace

std::string pickle(const Value& value, const StoragePlan& plan) { return Pickler(plan).run(value); }

}  // namespace deepspeed::checkpoint
