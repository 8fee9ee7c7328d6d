// Represents a value of a checkpoint file: whatever Python's pickle can hold, as data that is never executed.
#pragma once

#include <complex>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <string>
#include <type_traits>
#include <unordered_map>
#include <utility>
#include <variant>
#include <vector>

#include <ATen/core/Tensor.h>

#include "deepspeed/base/export.h"

namespace deepspeed::checkpoint {

class Value;
struct Object;

/// Holds a T on the heap, so that values stay small. Copying it copies the T.
template <class T>
class Boxed {
 public:
  Boxed() = default;
  explicit Boxed(T content) : content_(std::make_unique<T>(std::move(content))) {}
  Boxed(const Boxed& other) : content_(other.content_ ? std::make_unique<T>(*other.content_) : nullptr) {}
  Boxed(Boxed&& other) noexcept = default;
  Boxed& operator=(Boxed other) noexcept {
    std::swap(content_, other.content_);
    return *this;
  }
  ~Boxed() = default;

  /// Returns the content; null if it was made without one or moved from.
  T* get() { return content_.get(); }
  const T* get() const { return content_.get(); }

 private:
  std::unique_ptr<T> content_;
};

struct None {
  friend bool operator==(const None&, const None&) = default;
};
using List = std::vector<Value>;
struct Tuple {
  std::vector<Value> items;
};
struct Set {
  std::vector<Value> items;
};
struct FrozenSet {
  std::vector<Value> items;
};
struct ByteArray {
  std::vector<uint8_t> bytes;
};
/// Holds an integer of more than 64 bits in two's complement, little-endian, in as few bytes as possible. In
/// Python its value is int.from_bytes(bytes, "little", signed=True).
struct BigInt {
  std::vector<uint8_t> bytes;
};
/// Represents a torch.Size.
struct Size {
  std::vector<int64_t> dims;
};
/// Represents a torch.dtype such as torch.float32.
struct DType {
  at::ScalarType type;
};
/// Holds a dict in insertion order. If `ordered`, it is written as a collections.OrderedDict.
class DEEPSPEED_API Dict {
 public:
  Dict();
  explicit Dict(bool ordered);
  Dict(std::initializer_list<std::pair<Value, Value>> items);

  bool ordered() const { return ordered_; }
  size_t size() const;
  const std::vector<std::pair<Value, Value>>& items() const { return items_; }
  std::vector<std::pair<Value, Value>>& items() {
    forget_places();
    return items_;
  }
  /// Sets or replaces the value of a key.
  void set(Value key, Value value);
  /// Returns the value of a string key, or null.
  const Value* find(const std::string& key) const;
  /// Returns the value of an integer key, or null.
  const Value* find(int64_t key) const;
  /// Returns the value of a string key. Throws CheckpointError, naming the key, if it is absent.
  const Value& at(const std::string& key) const;

 private:
  using Key = std::variant<int64_t, std::string>;

  void forget_places();
  void note_places();
  /// Returns the index of a key among the items; size() if it is absent.
  size_t place_of(const Value& key) const;
  size_t place_of_key(const Key& key) const;
  const Value* find_key(const Key& key) const;

  std::vector<std::pair<Value, Value>> items_;
  bool ordered_ = false;
  // Positions of the first items, kept by set() once the dict is large. Filling a module of thousands of
  // tensors then takes linear instead of quadratic time.
  struct Places {
    std::unordered_map<Key, size_t> by_key;
    size_t num_noted = 0;
  };
  Boxed<Places> places_;
};
/// Names a class or function as Python 3 does. Members of a class have dots: "Outer.Inner".
struct Global {
  std::string module;
  std::string name;
};
class DEEPSPEED_API Value {
 public:
  using Variant = std::variant<None, bool, int64_t, double, std::string, std::vector<uint8_t>, at::Tensor,
                               List, Tuple, Set, Dict, Size, DType, Boxed<Object>, Boxed<Global>, FrozenSet,
                               ByteArray, BigInt, std::complex<double>>;

  Value() : data_(None{}) {}
  Value(None none) : data_(none) {}
  Value(bool value) : data_(value) {}
  Value(int value) : data_(int64_t{value}) {}
  Value(int64_t value) : data_(value) {}
  Value(double value) : data_(value) {}
  Value(const char* value) : data_(std::string(value)) {}
  Value(std::string value) : data_(std::move(value)) {}
  Value(at::Tensor value) : data_(std::move(value)) {}
  Value(List value) : data_(std::move(value)) {}
  Value(Tuple value) : data_(std::move(value)) {}
  Value(Set value) : data_(std::move(value)) {}
  Value(Dict value) : data_(std::move(value)) {}
  Value(Size value) : data_(std::move(value)) {}
  Value(DType value) : data_(value) {}
  Value(Object value);
  Value(Global value) : data_(Boxed<Global>(std::move(value))) {}
  Value(FrozenSet value) : data_(std::move(value)) {}
  Value(ByteArray value) : data_(std::move(value)) {}
  Value(BigInt value) : data_(std::move(value)) {}
  Value(std::complex<double> value) : data_(value) {}
  static Value bytes(std::vector<uint8_t> value);
  /// Returns the integer as an int64_t if it fits, otherwise as a BigInt. `bytes` is two's complement,
  /// little-endian, of any length.
  static Value integer(std::vector<uint8_t> bytes);

  const Variant& data() const { return data_; }
  Variant& data() { return data_; }
  template <class T>
  const T* get_if() const {
    if constexpr (std::is_same_v<T, Object> || std::is_same_v<T, Global>) {
      const auto* box = std::get_if<Boxed<T>>(&data_);
      return box == nullptr ? nullptr : box->get();
    } else {
      return std::get_if<T>(&data_);
    }
  }
  bool is_none() const { return std::holds_alternative<None>(data_); }

  // These convert to a type. They throw a CheckpointError that names the expected and the actual kind.
  bool as_bool() const;
  int64_t as_int() const;    // also a whole double or a 0-d integer tensor
  double as_double() const;  // also an integer or a 0-d tensor
  const std::string& as_string() const;
  const at::Tensor& as_tensor() const;
  const Dict& as_dict() const;
  /// Returns the items of a list or a tuple.
  const std::vector<Value>& as_sequence() const;
  std::vector<int64_t> as_size() const;  // torch.Size, or a sequence of integers

  /// Returns the kind for messages: "dict", "tensor", "int"; for an object its callable,
  /// "argparse.Namespace".
  std::string kind() const;

 private:
  Variant data_;
};

/// Describes an object for which Value has no type of its own. The description is that of Python's
/// __reduce_ex__(2). Reading keeps this description and calls nothing; the user of the object decides whether
/// to call its callable.
struct Object {
  /// Tells how Python creates the object from its callable and arguments.
  enum class Making {
    kCall,            // callable(*arguments)
    kNew,             // callable.__new__(callable, *arguments)
    kNewWithKeywords  // callable.__new__(callable, *arguments, **keywords)
  };
  using Pairs = std::vector<std::pair<Value, Value>>;

  std::string module;            // of the callable: "deepspeed.runtime.fp16.loss_scaler"
  std::string name;              // "LossScaler"
  std::vector<Value> arguments;  // an enum's value
  std::shared_ptr<Value> state;  // for __setstate__ or __dict__; null if there is none
  Making making = Making::kCall;
  Pairs keywords = {};                        // for kNewWithKeywords
  std::vector<Value> list_items = {};         // appended to the object, such as a deque's items
  Pairs dict_items = {};                      // set in the object, such as a defaultdict's items
  std::shared_ptr<Value> callable = nullptr;  // an object that is called; `module` and `name` are then empty
};

// These need the complete types Value and Object.
inline Dict::Dict() = default;
inline Dict::Dict(bool ordered) : ordered_(ordered) {}
inline size_t Dict::size() const { return items_.size(); }
inline Value::Value(Object value) : data_(Boxed<Object>(std::move(value))) {}

}  // namespace deepspeed::checkpoint
