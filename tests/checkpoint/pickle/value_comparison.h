// Compares checkpoint values, tensors bit by bit, after a round trip.
#pragma once

#include <algorithm>

#include <ATen/ops/equal.h>

#include "deepspeed/checkpoint/pickle/value.h"

namespace deepspeed::checkpoint {

inline bool same(const Value& left, const Value& right);

inline bool same_items(const std::vector<Value>& left, const std::vector<Value>& right) {
  return std::ranges::equal(left, right, same);
}
inline bool same_content(const at::Tensor& left, const at::Tensor& right) {
  return left.scalar_type() == right.scalar_type() && left.sizes() == right.sizes() && at::equal(left, right);
}
inline bool same_content(const List& left, const List& right) { return same_items(left, right); }
inline bool same_content(const Tuple& left, const Tuple& right) {
  return same_items(left.items, right.items);
}
inline bool same_content(const Set& left, const Set& right) { return same_items(left.items, right.items); }
inline bool same_content(const Size& left, const Size& right) { return left.dims == right.dims; }
inline bool same_content(const DType& left, const DType& right) { return left.type == right.type; }
inline bool same_pairs(const Object::Pairs& left, const Object::Pairs& right) {
  return std::ranges::equal(left, right, [](const auto& one, const auto& other) {
    return same(one.first, other.first) && same(one.second, other.second);
  });
}
inline bool same_content(const Dict& left, const Dict& right) {
  return left.ordered() == right.ordered() && same_pairs(left.items(), right.items());
}
inline bool same_content(const FrozenSet& left, const FrozenSet& right) {
  return same_items(left.items, right.items);
}
inline bool same_content(const ByteArray& left, const ByteArray& right) { return left.bytes == right.bytes; }
inline bool same_content(const BigInt& left, const BigInt& right) { return left.bytes == right.bytes; }
inline bool same_content(const Global& left, const Global& right) {
  return left.module == right.module && left.name == right.name;
}
inline bool same_part(const std::shared_ptr<Value>& left, const std::shared_ptr<Value>& right) {
  return left && right ? same(*left, *right) : !left == !right;
}
inline bool same_content(const Object& left, const Object& right) {
  return left.module == right.module && left.name == right.name && left.making == right.making &&
         same_items(left.arguments, right.arguments) && same_pairs(left.keywords, right.keywords) &&
         same_items(left.list_items, right.list_items) && same_pairs(left.dict_items, right.dict_items) &&
         same_part(left.callable, right.callable) && same_part(left.state, right.state);
}
template <class T>
bool same_content(const Boxed<T>& left, const Boxed<T>& right) {
  return same_content(*left.get(), *right.get());
}
template <class T>
bool same_content(const T& left, const T& right) {
  return left == right;
}

inline bool same(const Value& left, const Value& right) {
  if (left.data().index() != right.data().index()) return false;
  return std::visit(
      [&](const auto& content) {
        return same_content(content, *right.get_if<std::decay_t<decltype(content)>>());
      },
      left.data());
}

}  // namespace deepspeed::checkpoint
