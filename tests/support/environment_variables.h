// Variables of this process for the time of a test.
#pragma once

#include <map>
#include <string>

#include <unistd.h>

#include "deepspeed/base/env.h"

namespace deepspeed::testing {

/// Sets variables while it exists. Those of Accelerate that are not among them are unset.
class EnvironmentVariables {
 public:
  using Values = std::map<std::string, std::string>;

  explicit EnvironmentVariables(const Values& variables) {
    for (char** entry = environ; *entry != nullptr; ++entry) {
      const std::string text = *entry;
      const size_t equals = text.find('=');
      before_[text.substr(0, equals)] = text.substr(equals + 1);
    }
    for (const auto& [name, value] : before_)
      if (name.starts_with("ACCELERATE_")) env::set(name.c_str(), {});
    for (const auto& [name, value] : variables) {
      set_.insert({name, value});
      env::set(name.c_str(), value);
    }
  }
  ~EnvironmentVariables() {
    for (const auto& [name, value] : set_) env::set(name.c_str(), {});
    for (const auto& [name, value] : before_)
      if (name.starts_with("ACCELERATE_") || set_.contains(name)) env::set(name.c_str(), value);
  }
  EnvironmentVariables(const EnvironmentVariables&) = delete;
  EnvironmentVariables& operator=(const EnvironmentVariables&) = delete;

 private:
  Values before_, set_;
};

}  // namespace deepspeed::testing
