// One entry of a section's table describes a JSON key completely. Reading, defaults, ranges, the check for
// unsupported values, the help text and the list of options all come from it. See table.h for the link to a
// struct.
#pragma once

#include <functional>
#include <initializer_list>
#include <optional>
#include <string>
#include <vector>

#include "deepspeed/base/export.h"
#include "deepspeed/base/json.h"

namespace deepspeed::config {

enum class Kind { kBool, kInt, kFloat, kString, kStringList, kIntList, kObject, kSection, kAny };

/// Limits a number. Both ends are allowed unless the range is open.
struct Range {
  std::optional<double> minimum;
  std::optional<double> maximum;
  bool open = false;
};

/// Says what replaces a key of old configs. `convert` turns the old key's value into the replacement's.
/// Without `replacement` the value has no effect.
struct Deprecation {
  std::string replacement;
  std::function<Json(const Json&)> convert;
};

/// Requires that one of these keys has one of the values. Keys are paths in the whole config.
struct Condition {
  std::vector<std::string> paths;
  std::vector<Json> values;
};

struct Field {
  std::string key;
  Kind kind = Kind::kAny;
  Json default_value;   // canonical value if the key is absent; null: none
  std::string meaning;  // one line
  bool nullable = false;
  bool required = false;
  Range range;
  std::vector<std::string> choices;  // of a string, in the canonical spelling; empty: any text
  std::vector<std::string> aliases;
  std::function<Json(const Json&)> normalize;  // converts older shapes of the value to the current one
  std::function<bool(const Json&)> accepts;    // a further condition on the given value ...
  std::string accepts_text;                    // ... and its wording in errors, if the type does not say it
  std::string familiar_words;  // DeepSpeed's text for a wrong value; programs search errors for it
  std::optional<std::vector<Json>> supported_values;  // those documented values that this version supports
  std::string refusal;    // why the other values will never work; empty: they are planned
  std::string no_effect;  // why no value of the key has an effect in this version; empty: values act
  std::optional<Condition> effective_where;  // condition under which values act in spite of no_effect
  std::optional<Deprecation> deprecation;
  bool per_rank = false;  // concerns a rank's own machine, disk or log; ranks may have different values
  // The members below are for sections.
  std::vector<Field> children;
  bool open = false;             // keys without an entry are kept, not refused
  bool auto_is_default = false;  // "auto" means the default of each child
};

using Option = std::function<void(Field&)>;

/// Describes a key. With a null default the key accepts null, unless it is a section.
DEEPSPEED_API Field make_field(Kind kind, std::string key, Json default_value, std::string meaning,
                               std::initializer_list<Option> options);

// The functions below make entries without a struct member, for documented keys that are only read and
// checked.
DEEPSPEED_API Field boolean(std::string key, Json default_value, std::string meaning,
                            std::initializer_list<Option> options = {});
DEEPSPEED_API Field integer(std::string key, Json default_value, std::string meaning,
                            std::initializer_list<Option> options = {});
DEEPSPEED_API Field number(std::string key, Json default_value, std::string meaning,
                           std::initializer_list<Option> options = {});
DEEPSPEED_API Field text(std::string key, Json default_value, std::string meaning,
                         std::initializer_list<Option> options = {});
DEEPSPEED_API Field integers(std::string key, Json default_value, std::string meaning,
                             std::initializer_list<Option> options = {});
DEEPSPEED_API Field texts(std::string key, Json default_value, std::string meaning,
                          std::initializer_list<Option> options = {});
DEEPSPEED_API Field object(std::string key, Json default_value, std::string meaning,
                           std::initializer_list<Option> options = {});
DEEPSPEED_API Field any(std::string key, Json default_value, std::string meaning,
                        std::initializer_list<Option> options = {});
DEEPSPEED_API Field section(std::string key, std::string meaning, std::vector<Field> children,
                            std::initializer_list<Option> options = {});

// The functions below return the options of an entry.
DEEPSPEED_API Option at_least(double minimum);
DEEPSPEED_API Option above(double minimum);
DEEPSPEED_API Option between(double minimum, double maximum);
DEEPSPEED_API Option strictly_between(double minimum, double maximum);
DEEPSPEED_API Option one_of(std::vector<std::string> choices);
DEEPSPEED_API Option alias(std::string key);
DEEPSPEED_API Option or_null();
/// Stores infinity as null. A Json object can hold infinity, JSON text cannot.
DEEPSPEED_API Option infinity_is_null();
DEEPSPEED_API Option required();
/// Refuses any value but the default, because the feature does not exist yet.
DEEPSPEED_API Option not_yet();
/// Refuses any value but the default for good; `why` names the way out.
DEEPSPEED_API Option never(std::string why);
/// Accepts only these of the documented values so far.
DEEPSPEED_API Option only(std::vector<Json> values);
/// Accepts any value, but none has an effect. Loading a value other than the default logs this in one line.
DEEPSPEED_API Option without_effect(std::string why);
/// Accepts any value, but values act only if a key in `paths` has a value in `values`. `why` says so.
DEEPSPEED_API Option effective_where(std::vector<std::string> paths, std::vector<Json> values,
                                     std::string why);
/// Accepts any value, but values act only at this ZeRO stage.
DEEPSPEED_API Option effective_at_stage(int64_t stage);
DEEPSPEED_API Option keeps_unknown_keys();
DEEPSPEED_API Option auto_means_default();
DEEPSPEED_API Option normalized_by(std::function<Json(const Json&)> normalize);
DEEPSPEED_API Option accepted_if(std::function<bool(const Json&)> accepts, std::string wording);
DEEPSPEED_API Option deprecated(std::string replacement, std::function<Json(const Json&)> convert);
/// Allows ranks to have different values, as for a path or a log level.
DEEPSPEED_API Option per_rank();
/// Ends the error for a wrong value with DeepSpeed's words, which programs search for.
DEEPSPEED_API Option in_familiar_words(std::string words);
/// Refuses an empty text.
DEEPSPEED_API Option not_empty();
/// Refuses truth values, which count as numbers elsewhere.
DEEPSPEED_API Option no_truth_value();

/// Joins the path of a section and a key in it: "fp16.enabled". The top level's path is empty.
std::string join(const std::string& path, const std::string& key);

/// Returns whether a key names the field, directly or by an alias.
bool answers_to(const Field& field, const std::string& key);

/// Finds the field that a key names, directly or by an alias. Returns null if there is none.
const Field* find_field(const std::vector<Field>& fields, const std::string& key);

/// Describes what a value of the field must be: "a whole number of at least 1 or null".
DEEPSPEED_API std::string expected_value(const Field& field);

/// Returns a section's values with the defaults of missing keys. `values` are as read_section() returns them.
/// Nested sections that may be null stay absent.
Json with_defaults(const std::vector<Field>& fields, const Json& values);

/// Returns the top level of the config as a section without a name. Its children are the top-level keys
/// (config/config.cpp).
DEEPSPEED_API const Field& all_options();

}  // namespace deepspeed::config
