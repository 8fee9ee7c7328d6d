// Asks a person, or takes the answers from a file.
#pragma once

#include <functional>
#include <iosfwd>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "deepspeed/accelerate/config/deepspeed_fields.h"
#include "deepspeed/base/json.h"

namespace deepspeed::accelerate {

/// Returns the answers to questions, each of which has an id.
class Asker {
 public:
  /// Asks on `out` and reads lines from `in`.
  Asker(std::istream& in, std::ostream& out) : in_(&in), out_(&out) {}
  /// Takes the answers by id, and defaults for those that are missing. Nothing is asked.
  explicit Asker(Json answers) : answers_(std::move(answers)) {}

  /// Returns the answer. An empty line means `otherwise`; without one the question is asked again. Throws
  /// ConfigError for a given answer of another kind, for a missing one without a default, and at the end of
  /// the input.
  Json ask(const std::string& id, const std::string& question, ValueKind kind,
           const Json& otherwise = nullptr);
  /// Returns one of `choices`. A person gives its number or its text.
  std::string choose(const std::string& id, const std::string& question,
                     const std::vector<std::string>& choices, size_t otherwise = 0);
  /// Returns whether the answer is yes. It is also yes if an answer is given for one of `following`, the
  /// questions that only a yes leads to.
  bool agree(const std::string& id, const std::string& question,
             const std::vector<std::string>& following = {});

  /// Throws ConfigError, with the nearest question, for a given answer that no question took.
  void require_all_taken() const;

 private:
  /// Returns the given answer, or the line that a person writes; nothing for an empty line or a default.
  std::optional<Json> answer(const std::string& id, const std::string& prompt);

  std::istream* in_ = nullptr;
  std::ostream* out_ = nullptr;
  Json answers_ = Json::object();
  std::set<std::string> asked_;
};

}  // namespace deepspeed::accelerate
