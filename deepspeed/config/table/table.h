// Links a section's entries to the members of its struct. A member's initialiser is the key's default.
#pragma once

#include <concepts>
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "deepspeed/base/json.h"
#include "deepspeed/config/table/field.h"

namespace deepspeed::config {

/// Says which kind of JSON value a member's type corresponds to.
template <class T>
struct MemberType;
template <>
struct MemberType<bool> {
  static constexpr Kind kKind = Kind::kBool;
};
template <>
struct MemberType<int64_t> {
  static constexpr Kind kKind = Kind::kInt;
};
template <>
struct MemberType<double> {
  static constexpr Kind kKind = Kind::kFloat;
};
template <>
struct MemberType<std::string> {
  static constexpr Kind kKind = Kind::kString;
};
template <>
struct MemberType<std::vector<std::string>> {
  static constexpr Kind kKind = Kind::kStringList;
};
template <>
struct MemberType<std::vector<int64_t>> {
  static constexpr Kind kKind = Kind::kIntList;
};
template <>
struct MemberType<Json> {
  static constexpr Kind kKind = Kind::kObject;
};

/// Links the description of a JSON key (Field) to a member of a struct.
template <class Section>
struct Entry {
  Field field;
  std::function<void(Section&, const Json&)> assign;
  std::function<Json(const Section&)> value;

  /// Makes the entry of a key that has no struct member.
  Entry(Field unbound) : field(std::move(unbound)) {}
  Entry(Field bound, std::function<void(Section&, const Json&)> assign,
        std::function<Json(const Section&)> value)
      : field(std::move(bound)), assign(std::move(assign)), value(std::move(value)) {}
  /// Makes the entry of a member that `Section` inherits from a base.
  template <class Base>
  requires std::derived_from<Section, Base> Entry(Entry<Base> inherited)
      : field(std::move(inherited.field)),
        assign(std::move(inherited.assign)),
        value(std::move(inherited.value)) {}
};

/// Holds all keys of a section: their fields, and the conversion between struct and JSON.
template <class Section>
class Table {
 public:
  Table(std::vector<Entry<Section>> entries) : entries_(std::move(entries)) {
    for (const auto& entry : entries_) fields_.push_back(entry.field);
  }

  const std::vector<Field>& fields() const { return fields_; }

  /// Sets the members whose keys are in `values`, as read_section() returns them.
  void assign(Section& section, const Json& values) const {
    for (const auto& entry : entries_) {
      const auto found = values.find(entry.field.key);
      if (found != values.end() && entry.assign) entry.assign(section, *found);
    }
  }

  /// Writes the members as JSON, with defaults; absent sections stay absent.
  Json to_json(const Section& section) const {
    Json values = Json::object();
    for (const auto& entry : entries_) {
      if (!entry.value) continue;
      Json value = entry.value(section);
      if (!value.is_null() || entry.field.kind != Kind::kSection) values[entry.field.key] = std::move(value);
    }
    return values;
  }

 private:
  std::vector<Entry<Section>> entries_;
  std::vector<Field> fields_;
};

/// Makes the entry of a member with a plain type.
template <class Section, class T>
Entry<Section> entry(const char* key, T Section::*member, const char* meaning,
                     std::initializer_list<Option> options = {}) {
  Field field = make_field(MemberType<T>::kKind, key, Json(Section{}.*member), meaning, options);
  return {std::move(field),
          [member](Section& section, const Json& value) { section.*member = value.get<T>(); },
          [member](const Section& section) { return Json(section.*member); }};
}

/// Makes the entry of a member that keeps a value of any type as given.
template <class Section>
Entry<Section> any_entry(const char* key, Json Section::*member, const char* meaning,
                         std::initializer_list<Option> options = {}) {
  Field field = make_field(Kind::kAny, key, Section{}.*member, meaning, options);
  return {std::move(field), [member](Section& section, const Json& value) { section.*member = value; },
          [member](const Section& section) { return section.*member; }};
}

/// Makes the entry of a member that may be absent, written as null.
template <class Section, class T>
Entry<Section> entry(const char* key, std::optional<T> Section::*member, const char* meaning,
                     std::initializer_list<Option> options = {}) {
  Field field = make_field(MemberType<T>::kKind, key, nullptr, meaning, options);
  const auto assign = [member](Section& section, const Json& value) {
    section.*member = value.is_null() ? std::optional<T>() : value.get<T>();
  };
  const auto value = [member](const Section& section) {
    return section.*member ? Json(*(section.*member)) : Json();
  };
  return {std::move(field), assign, value};
}

/// Makes the entry of a member that is itself a section.
template <class Section, class Inner>
Entry<Section> section_entry(const char* key, Inner Section::*member, const Table<Inner>& table,
                             const char* meaning, std::initializer_list<Option> options = {}) {
  const auto assign = [member, &table](Section& section, const Json& value) {
    if (!value.is_null()) table.assign(section.*member, value);
  };
  const auto value = [member, &table](const Section& section) { return table.to_json(section.*member); };
  return {config::section(key, meaning, table.fields(), options), assign, value};
}

/// Makes the entry of a section that may be absent.
template <class Section, class Inner>
Entry<Section> section_entry(const char* key, std::optional<Inner> Section::*member,
                             const Table<Inner>& table, const char* meaning,
                             std::initializer_list<Option> options = {}) {
  const auto assign = [member, &table](Section& section, const Json& value) {
    if (!value.is_null()) table.assign((section.*member).emplace(), value);
  };
  const auto value = [member, &table](const Section& section) {
    return section.*member ? table.to_json(*(section.*member)) : Json();
  };
  return {config::section(key, meaning, table.fields(), options), assign, value};
}

/// Makes the entry of a section that nothing uses yet. The member keeps the given keys. It is null if the
/// section may be absent and is absent.
template <class Section>
Entry<Section> kept_section(const char* key, Json Section::*member, std::vector<Field> children,
                            const char* meaning, std::initializer_list<Option> options = {}) {
  const auto assign = [member](Section& section, const Json& value) {
    if (!value.is_null()) section.*member = value;
  };
  const auto value = [member, children](const Section& section) {
    const Json& kept = section.*member;
    return kept.is_null() ? Json() : with_defaults(children, kept);
  };
  return {config::section(key, meaning, std::move(children), options), assign, value};
}

}  // namespace deepspeed::config
