// A config as an object: made from key/value pairs, read by key and by member, completed and checked together
// with the configs inside it. A program's own settings join the library's by deriving from ConfigOf:
//
//   struct RunConfig : deepspeed::config::ConfigOf<RunConfig> {
//     int64_t num_layers = 12;
//     deepspeed::config::FP16Config fp16;
//
//     RunConfig(Pairs pairs = {}) { update(pairs); }
//     static const deepspeed::config::Members<RunConfig>& members() {
//       static const deepspeed::config::Members<RunConfig> members({
//           member("num_layers", &RunConfig::num_layers, "Layers of the model.", {at_least(1)}),
//           sub_config("fp16", &RunConfig::fp16, "Training in float16."),
//       });
//       return members;
//     }
//   };
//
//   auto run = RunConfig::from_dict({{"num_layers", 24}, {"fp16", {{"enabled", true}}}});
//   run.num_layers == run["num_layers"];
#pragma once

#include <cstdint>
#include <functional>
#include <initializer_list>
#include <string>
#include <utility>
#include <vector>

#include "deepspeed/base/export.h"
#include "deepspeed/base/json.h"
#include "deepspeed/config/table/table.h"

namespace deepspeed::config {

/// A config of key/value pairs. By itself it holds any keys. Classes that derive from ConfigOf know theirs:
/// another key, or a value of another type or out of its range, is a ConfigError that names the key's path
/// and the nearest known key.
class DEEPSPEED_API Config {
 public:
  using Pairs = std::initializer_list<std::pair<std::string, Json>>;

  Config() = default;
  Config(Pairs pairs);
  virtual ~Config() = default;
  Config(const Config&) = default;
  Config& operator=(const Config&) = default;

  /// Makes a config of a JSON object. Throws ConfigError for anything else.
  static Config from_dict(const Json& dict);

  /// Sets the given keys and leaves the others.
  void update(Pairs pairs);
  void update(const Json& dict);
  void set(const std::string& key, const Json& value);

  /// Returns a key's value. Throws ConfigError, naming the nearest key, for a key that the config does not
  /// have.
  Json operator[](const std::string& key) const;
  bool contains(const std::string& key) const;
  virtual Json to_dict() const { return values_; }

  /// Infers missing values where that is possible, here and in the configs inside, for a number of
  /// data-parallel ranks.
  void resolve(int64_t world_size = 1);

  /// Resolves, then checks this config and those inside. Throws ConfigError with the key's path.
  void validate(int64_t world_size = 1);

  /// Whether validate throws no ConfigError.
  bool is_valid(int64_t world_size = 1);

 protected:
  // The two functions below are what a class of its own may add. They are called after those of the configs
  // inside.
  virtual void resolve_own(int64_t /*world_size*/) {}
  virtual void check_own(int64_t /*world_size*/) const {}

  // The functions below are what ConfigOf knows.
  virtual void assign(const Json& dict);
  virtual std::string present_name(const std::string& key) const { return key; }
  virtual std::vector<std::pair<std::string, Config*>> sub_configs() { return {}; }

 private:
  Json values_ = Json::object();
};

/// A key of a config class: its entry, and where the member is a config, the way to it.
template <class Derived>
struct Member {
  Entry<Derived> entry;
  std::function<Config*(Derived&)> sub;
};

template <class Derived>
class Members {
 public:
  Members(std::vector<Member<Derived>> members)
      : members_(std::move(members)), table_(entries(members_)), section_(section("", "", table_.fields())) {}

  const Table<Derived>& table() const { return table_; }
  const Field& section_field() const { return section_; }

  std::vector<std::pair<std::string, Config*>> sub_configs(Derived& config) const {
    std::vector<std::pair<std::string, Config*>> found;
    for (const auto& member : members_) {
      if (member.sub) found.emplace_back(member.entry.field.key, member.sub(config));
    }
    return found;
  }

 private:
  static std::vector<Entry<Derived>> entries(const std::vector<Member<Derived>>& members) {
    std::vector<Entry<Derived>> found;
    for (const auto& member : members) found.push_back(member.entry);
    return found;
  }

  std::vector<Member<Derived>> members_;
  Table<Derived> table_;
  Field section_;
};

/// Makes the key of a member of a plain type, or of an optional one; options as in field.h.
template <class Derived, class T>
Member<Derived> member(const char* key, T Derived::*pointer, const char* meaning,
                       std::initializer_list<Option> options = {}) {
  return {entry(key, pointer, meaning, options), nullptr};
}

/// Makes the key of a member that is a config itself.
template <class Derived, class Inner>
Member<Derived> sub_config(const char* key, Inner Derived::*pointer, const char* meaning) {
  const auto assign = [pointer](Derived& config, const Json& value) { (config.*pointer).update(value); };
  const auto value = [pointer](const Derived& config) { return (config.*pointer).to_dict(); };
  const auto sub = [pointer](Derived& config) -> Config* { return &(config.*pointer); };
  return {Entry<Derived>(section(key, meaning, Inner::members().table().fields()), assign, value), sub};
}

/// Finds the present name of a key of the section. Throws ConfigError for a key that the section does not
/// have.
DEEPSPEED_API std::string present_name_in(const Field& section, const std::string& key);

/// Reads the values of `dict` and checks them against the section; the part of ConfigOf that needs no type.
DEEPSPEED_API Json read_dict(const Field& section, const Json& dict);

/// The base of a config class with keys of its own, which Derived::members() names.
template <class Derived>
class ConfigOf : public Config {
 public:
  static Derived from_dict(const Json& dict) {
    Derived config;
    config.update(dict);
    return config;
  }

  Json to_dict() const override {
    return Derived::members().table().to_json(static_cast<const Derived&>(*this));
  }

 protected:
  void assign(const Json& dict) override {
    const auto& members = Derived::members();
    members.table().assign(static_cast<Derived&>(*this), read_dict(members.section_field(), dict));
  }
  std::string present_name(const std::string& key) const override {
    return present_name_in(Derived::members().section_field(), key);
  }
  std::vector<std::pair<std::string, Config*>> sub_configs() override {
    return Derived::members().sub_configs(static_cast<Derived&>(*this));
  }
};

}  // namespace deepspeed::config
