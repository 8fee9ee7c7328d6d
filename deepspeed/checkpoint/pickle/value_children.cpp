#include "deepspeed/checkpoint/pickle/value_children.h"

#include <memory>
#include <type_traits>

namespace deepspeed::checkpoint {
namespace {

template <class Items, class Apply>
void for_items(Items& items, const Apply& apply) {
  for (auto& item : items) apply(item);
}

template <class Pairs, class Apply>
void for_pairs(Pairs& pairs, const Apply& apply) {
  for (auto& [key, item] : pairs) {
    apply(key);
    apply(item);
  }
}

/// Calls `apply` with each part of a value's content. An object's callable and state, which its copies share,
/// go to `apply_shared` as pointers.
template <class Content, class Apply, class ApplyShared>
void for_children(Content& content, const Apply& apply, const ApplyShared& apply_shared) {
  using T = std::remove_const_t<Content>;
  if constexpr (std::is_same_v<T, List>) {
    for_items(content, apply);
  } else if constexpr (std::is_same_v<T, Tuple> || std::is_same_v<T, Set> || std::is_same_v<T, FrozenSet>) {
    for_items(content.items, apply);
  } else if constexpr (std::is_same_v<T, Dict>) {
    for_pairs(content.items(), apply);
  } else if constexpr (std::is_same_v<T, Boxed<Object>>) {
    auto& object = *content.get();
    if (object.callable) apply_shared(object.callable);
    for_items(object.arguments, apply);
    for_pairs(object.keywords, apply);
    for_items(object.list_items, apply);
    for_pairs(object.dict_items, apply);
    if (object.state) apply_shared(object.state);
  }
}

}  // namespace

void visit_children(const Value& value, const std::function<void(const Value&)>& visit) {
  const auto visit_shared = [&](const std::shared_ptr<Value>& shared) { visit(*shared); };
  std::visit([&](const auto& content) { for_children(content, visit, visit_shared); }, value.data());
}

void change_children(Value& value, const std::function<void(Value&)>& change) {
  const auto change_copy = [&](std::shared_ptr<Value>& shared) {
    shared = std::make_shared<Value>(*shared);
    change(*shared);
  };
  std::visit([&](auto& content) { for_children(content, change, change_copy); }, value.data());
}

}  // namespace deepspeed::checkpoint
