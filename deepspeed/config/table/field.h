// One entry of a section's table: all that is known of a JSON key, spelled once. Reading, defaults, ranges,
// the check of what this version has, the help text and the list of options come from it; see table.h for the
// tie to a struct.
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

/// A range of numbers. Both ends belong to it unless it is open.
struct Range {
  std::optional<double> minimum;
  std::optional<double> maximum;
  bool open = false;
};

/// Says what became of a key that old configs use. An empty `replacement` means that the value has no effect
/// any more.
struct Deprecation {
  std::string replacement;
  std::function<Json(const Json&)> convert;
};

/// Holds where one of these keys of the whole config, by their paths, has one of the values.
struct Condition {
  std::vector<std::string> paths;
  std::vector<Json> values;
};

struct Field {
  std::string key;
  Kind kind = Kind::kAny;
  Json default_value;   // the canonical value where the key is absent; null: none
  std::string meaning;  // one line
  bool nullable = false;
  bool required = false;
  Range range;
  std::vector<std::string> choices;  // of a string, in the spelling that the reader gives; empty: any text
  std::vector<std::string> aliases;
  std::function<Json(const Json&)> normalize;  // older shapes of the value into the present one
  std::function<bool(const Json&)> accepts;    // a further condition on the value as given ...
  std::string accepts_text;    // ... and its wording for the error, where the type does not say it
  std::string familiar_words;  // what DeepSpeed says of a wrong value: programs look for it in the error
  std::optional<std::vector<Json>> supported_values;  // what this version can do, of the documented values
  std::string refusal;    // why the other values will never work; empty: they come later
  std::string no_effect;  // why no value of it changes anything in this version; empty: values act
  std::optional<Condition> effective_where;  // where values act in spite of no_effect
  std::optional<Deprecation> deprecation;
  bool per_rank = false;  // about a rank's own machine, disk or log: the ranks' values may differ
  // The members below are for sections.
  std::vector<Field> children;
  bool open = false;             // keys without an entry are kept, not refused
  bool auto_is_default = false;  // "auto" stands for the default of each child
};

using Option = std::function<void(Field&)>;

/// Makes an entry. A default of null makes it nullable, except for sections.
DEEPSPEED_API Field make_field(Kind kind, std::string key, Json default_value, std::string meaning,
                               std::initializer_list<Option> options);

// The functions below make entries without a struct member: documented keys that are read and checked only.
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

// The functions below are what an entry may add.
DEEPSPEED_API Option at_least(double minimum);
DEEPSPEED_API Option above(double minimum);
DEEPSPEED_API Option between(double minimum, double maximum);
DEEPSPEED_API Option strictly_between(double minimum, double maximum);
DEEPSPEED_API Option one_of(std::vector<std::string> choices);
DEEPSPEED_API Option alias(std::string key);
DEEPSPEED_API Option or_null();
/// Infinity, which a Json object can hold though no JSON text can, stands for null.
DEEPSPEED_API Option infinity_is_null();
DEEPSPEED_API Option required();
/// The feature does not exist yet: any value but the default is refused.
DEEPSPEED_API Option not_yet();
/// Any value but the default is refused for good; `why` names the way out.
DEEPSPEED_API Option never(std::string why);
/// Only these of the documented values work so far.
DEEPSPEED_API Option only(std::vector<Json> values);
/// Any value is accepted, and none acts: loading a value that is not the default says so in one line.
DEEPSPEED_API Option without_effect(std::string why);
/// Any value is accepted; values act only where one of the keys has one of the values, which `why` says.
DEEPSPEED_API Option effective_where(std::vector<std::string> paths, std::vector<Json> values,
                                     std::string why);
/// Any value is accepted; values act only at this stage of ZeRO.
DEEPSPEED_API Option effective_at_stage(int64_t stage);
DEEPSPEED_API Option keeps_unknown_keys();
DEEPSPEED_API Option auto_means_default();
DEEPSPEED_API Option normalized_by(std::function<Json(const Json&)> normalize);
DEEPSPEED_API Option accepted_if(std::function<bool(const Json&)> accepts, std::string wording);
DEEPSPEED_API Option deprecated(std::string replacement, std::function<Json(const Json&)> convert);
/// The value is a rank's own, as a path or a level of the log is: the ranks' may differ.
DEEPSPEED_API Option per_rank();
/// The error of a wrong value ends with DeepSpeed's words for it, which programs look for.
DEEPSPEED_API Option in_familiar_words(std::string words);
/// An empty text is refused.
DEEPSPEED_API Option not_empty();
/// The truth values are no numbers here, though they pass for numbers elsewhere.
DEEPSPEED_API Option no_truth_value();

/// What a value of the field must be, in words: "a whole number of at least 1 or null".
DEEPSPEED_API std::string expected_value(const Field& field);

/// Adds to the values of a section, as read_section gives them, the defaults of its other keys. Sections in
/// it that may be null stay absent.
Json with_defaults(const std::vector<Field>& fields, const Json& values);

/// All documented keys: a section without a name whose children are the keys of the top level
/// (config/top_level.cpp).
DEEPSPEED_API const Field& all_options();

}  // namespace deepspeed::config
