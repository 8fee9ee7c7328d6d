#include "deepspeed/checkpoint/sources/universal_patterns.h"

#include <regex>

#include "deepspeed/base/error.h"

namespace deepspeed::checkpoint {
namespace {

const Value* find(const Value& info, const char* key) {
  const Value* value = info.is_none() ? nullptr : info.as_dict().find(key);
  return value == nullptr || value->is_none() ? nullptr : value;
}

void require_empty(const Value& info, const char* key) {
  const Value* value = find(info, key);
  if (value == nullptr) return;
  const size_t size =
      value->get_if<Dict>() != nullptr ? value->as_dict().size() : value->as_sequence().size();
  if (size > 0) raise<NotSupportedError>("'", key, "' is not supported yet");
}

}  // namespace

UniversalPatterns::UniversalPatterns(const Value& info)
    : replicated_(patterns_of(info, "tp_replicated_parameter_patterns")),
      averaged_(patterns_of(info, "parameter_to_average_patterns")),
      two_parts_(patterns_of(info, "parameter_with_2_sub_params_cat_dim_0")),
      rows_(patterns_of(info, "parameter_with_row_parallelism_patterns")),
      vocabulary_(patterns_of(info, "vocabulary_parameter_patterns")) {
  require_empty(info, "parameter_with_sub_params");
  require_empty(info, "autotp_unsupported_parameter_patterns");
  if (!vocabulary_.empty()) vocabulary_size_ = info.as_dict().at("original_vocab_size").as_int();
}

UniversalPatterns::Patterns UniversalPatterns::patterns_of(const Value& info, const char* key) {
  Patterns patterns;
  const Value* value = find(info, key);
  if (value == nullptr) return patterns;
  for (const Value& pattern : value->as_sequence()) patterns.push_back({pattern.as_string()});
  return patterns;
}

bool UniversalPatterns::match(Patterns& patterns, const std::string& parameter) {
  const Pattern* found = nullptr;
  for (Pattern& pattern : patterns) {
    try {
      // The pattern must match at the name's start, as with Python's re.match.
      if (!std::regex_search(parameter, std::regex(pattern.text), std::regex_constants::match_continuous))
        continue;
    } catch (const std::regex_error& error) {
      raise<CheckpointError>("the pattern '", pattern.text, "' cannot be read: ", error.what());
    }
    if (found != nullptr) {
      raise<CheckpointError>("the patterns '", found->text, "' and '", pattern.text, "' both fit '",
                             parameter, "'");
    }
    pattern.used = true;
    found = &pattern;
  }
  return found != nullptr;
}

UniversalMarks UniversalPatterns::marks_of(const std::string& parameter) {
  UniversalMarks result;
  if (match(replicated_, parameter) || match(averaged_, parameter)) {
    // The parameter is the same on all ranks, so it has no cut dimension.
  } else if (match(two_parts_, parameter)) {
    result.marks = Dict{{"cat_dim", 0}, {"param_n_sub_params", 2}};
  } else {
    result.marks = Dict{{"cat_dim", match(rows_, parameter) ? 1 : 0}};
  }
  if (match(vocabulary_, parameter)) {
    result.marks.set("vocab_tensor", true);
    result.rows = vocabulary_size_;
  }
  return result;
}

std::vector<std::string> UniversalPatterns::unused() const {
  std::vector<std::string> unused;
  for (const Patterns* patterns : {&replicated_, &averaged_, &two_parts_, &rows_, &vocabulary_}) {
    for (const Pattern& pattern : *patterns) {
      if (!pattern.used) unused.push_back(pattern.text);
    }
  }
  return unused;
}

}  // namespace deepspeed::checkpoint
