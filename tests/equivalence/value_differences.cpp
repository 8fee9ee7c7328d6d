#include "tests/equivalence/value_differences.h"

#include <algorithm>

#include <ATen/ops/equal.h>

#include "deepspeed/base/error.h"

namespace deepspeed::testing {
namespace {

using checkpoint::Dict;
using checkpoint::Object;
using checkpoint::Value;
using Lines = std::vector<std::string>;

bool is_number(const Value& value) {
  return value.get_if<int64_t>() != nullptr || value.get_if<double>() != nullptr;
}

bool is_sequence(const Value& value) {
  return value.get_if<checkpoint::List>() != nullptr || value.get_if<checkpoint::Tuple>() != nullptr;
}

std::string key_text(const Value& key) {
  return key.get_if<std::string>() != nullptr ? key.as_string() : std::to_string(key.as_int());
}

Lines keys_of(const Dict& dict, const Lines& passed_over, const std::string& path) {
  Lines keys;
  for (const auto& [key, value] : dict.items()) {
    std::string text = key_text(key);
    if (std::ranges::find(passed_over, path + "/" + text) == passed_over.end())
      keys.push_back(std::move(text));
  }
  return keys;
}

const Value& entry(const Dict& dict, const std::string& key) {
  return std::ranges::find(dict.items(), key, [](const auto& item) { return key_text(item.first); })->second;
}

Lines of_dicts(const Dict& ours, const Dict& theirs, const Lines& passed_over, const std::string& path) {
  Lines found;
  Lines own = keys_of(ours, passed_over, path), other = keys_of(theirs, passed_over, path);
  if (!theirs.ordered() || ours.ordered() != theirs.ordered()) {
    std::ranges::sort(own);
    std::ranges::sort(other);
  }
  if (ours.ordered() != theirs.ordered()) found.push_back(path + ": an ordered dict and another");
  if (own != other) {
    std::string line = path + ": the keys";
    for (const std::string& key : own) line += " " + key;
    line += " and";
    for (const std::string& key : other) line += " " + key;
    found.push_back(line);
  }
  for (const std::string& key : own) {
    if (std::ranges::find(other, key) == other.end()) continue;
    const Lines inside = differences(entry(ours, key), entry(theirs, key), passed_over, path + "/" + key);
    found.insert(found.end(), inside.begin(), inside.end());
  }
  return found;
}

Lines of_sequences(const Lines& passed_over, const std::vector<Value>& ours, const std::vector<Value>& theirs,
                   const std::string& path) {
  if (ours.size() != theirs.size()) return {message(path, ": ", ours.size(), " entries and ", theirs.size())};
  Lines found;
  for (size_t index = 0; index < ours.size(); ++index) {
    const Lines inside =
        differences(ours[index], theirs[index], passed_over, path + "/" + std::to_string(index));
    found.insert(found.end(), inside.begin(), inside.end());
  }
  return found;
}

Lines of_objects(const Object& ours, const Object& theirs, const Lines& passed_over,
                 const std::string& path) {
  if (ours.module != theirs.module || ours.name != theirs.name || !ours.state != !theirs.state)
    return {message(path, ": a ", ours.module, ".", ours.name, " and a ", theirs.module, ".", theirs.name)};
  Lines found = of_sequences(passed_over, ours.arguments, theirs.arguments, path);
  if (!ours.state) return found;
  const Lines inside = differences(*ours.state, *theirs.state, passed_over, path);
  found.insert(found.end(), inside.begin(), inside.end());
  return found;
}

bool is_same_scalar(const Value& ours, const Value& theirs) {
  if (const auto* tensor = ours.get_if<at::Tensor>()) {
    const at::Tensor& other = theirs.as_tensor();
    return tensor->scalar_type() == other.scalar_type() && tensor->sizes() == other.sizes() &&
           at::equal(*tensor, other);
  }
  if (const auto* size = ours.get_if<checkpoint::Size>()) return size->dims == theirs.as_size();
  if (const auto* type = ours.get_if<checkpoint::DType>())
    return type->type == theirs.get_if<checkpoint::DType>()->type;
  if (const auto* flag = ours.get_if<bool>()) return *flag == theirs.as_bool();
  if (const auto* text = ours.get_if<std::string>()) return *text == theirs.as_string();
  if (const auto* set = ours.get_if<checkpoint::Set>())
    return set->items.empty() && theirs.get_if<checkpoint::Set>()->items.empty();
  return ours.is_none();
}

}  // namespace

Lines differences(const Value& ours, const Value& theirs, const Lines& passed_over, const std::string& path) {
  if (std::ranges::find(passed_over, path) != passed_over.end()) return {};
  if (is_number(ours) && is_number(theirs)) {
    if (ours.as_double() == theirs.as_double()) return {};
    return {message(path, ": ", ours.as_double(), " and ", theirs.as_double())};
  }
  if (is_sequence(ours) && is_sequence(theirs))
    return of_sequences(passed_over, ours.as_sequence(), theirs.as_sequence(), path);
  if (ours.data().index() != theirs.data().index())
    return {path + ": a " + ours.kind() + " and a " + theirs.kind()};
  if (const auto* dict = ours.get_if<Dict>()) return of_dicts(*dict, theirs.as_dict(), passed_over, path);
  if (const auto* object = ours.get_if<Object>())
    return of_objects(*object, *theirs.get_if<Object>(), passed_over, path);
  if (is_same_scalar(ours, theirs)) return {};
  return {path + ": the two " + ours.kind() + "s differ"};
}

}  // namespace deepspeed::testing
