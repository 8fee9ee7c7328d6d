// A map is a domain if it has a key `type`, and each type has its own keys. All other maps are spaces, whose
// entries are read like those of the outermost map.
#include "deepspeed/trial/experiment/read_hyperparameters.h"

#include <algorithm>
#include <cmath>

#include "deepspeed/base/json_file.h"
#include "deepspeed/config/table/nearest_key.h"
#include "deepspeed/trial/experiment/yaml_section.h"

namespace deepspeed::trial {
namespace {

constexpr int64_t kMostPoints = 100'000;

const std::vector<std::string>& domain_types() {
  static const std::vector<std::string> types = {"const", "int", "double", "log", "categorical"};
  return types;
}

/// Replaces each text that number_of() takes for a number, also inside lists and maps.
Json with_numbers(const Json& value) {
  if (const auto number = value.is_string() ? number_of(value) : std::nullopt) return *number;
  if (!value.is_structured()) return value;
  Json changed = value;
  for (Json& item : changed) item = with_numbers(item);
  return changed;
}

int64_t needed_whole(const YamlSection& domain, const std::string& key) {
  const auto found = domain.whole(key, -kMaxWhole, kMaxWhole);
  if (!found) domain.fail_value(key, "a whole number");
  return *found;
}

double needed_number(const YamlSection& domain, const std::string& key) {
  const auto found = domain.number(key);
  if (!found) domain.fail_value(key, "a number");
  return *found;
}

/// Checks the limits of a range, and the count that a grid needs.
template <class Range>
Range checked(const YamlSection& domain, Range range, bool is_grid) {
  if (!(range.minimum < range.maximum)) {
    domain.fail("minval", "got ", json_excerpt(Json(range.minimum)), ", expected less than maxval, which is ",
                json_excerpt(Json(range.maximum)), "; a hyperparameter with one value is a constant");
  }
  range.count = domain.whole("count", 1, kMostPoints);
  if (is_grid && !range.count)
    domain.fail("count", "missing, expected the number of points of the grid from minval to maxval");
  return range;
}

IntRange int_range(const YamlSection& domain, bool is_grid) {
  return checked(domain, IntRange{needed_whole(domain, "minval"), needed_whole(domain, "maxval"), {}},
                 is_grid);
}

DoubleRange double_range(const YamlSection& domain, bool is_grid) {
  const double minimum = needed_number(domain, "minval"), maximum = needed_number(domain, "maxval");
  if (!std::isfinite(maximum - minimum))
    domain.fail("minval", "the range is too large, expected that maxval - minval is finite");
  return checked(domain, DoubleRange{minimum, maximum, {}}, is_grid);
}

LogRange log_range(const YamlSection& domain, bool is_grid) {
  const double minimum = needed_number(domain, "minval"), maximum = needed_number(domain, "maxval");
  const double base = needed_number(domain, "base");
  if (base <= 0) domain.fail_value("base", "a number above 0");
  for (const double exponent : {minimum, maximum}) {
    const double end = std::pow(base, exponent);
    if (std::isfinite(end) && end > 0) continue;
    domain.fail(exponent == minimum ? "minval" : "maxval", "got ", json_excerpt(Json(exponent)),
                ", and base ", json_excerpt(Json(base)),
                " to this power is no number: minval and maxval are exponents");
  }
  return checked(domain, LogRange{base, minimum, maximum, {}}, is_grid);
}

Choice choice_of(const YamlSection& domain) {
  const Json* values = domain.find("vals");
  if (values == nullptr || !values->is_array() || values->empty())
    domain.fail_value("vals", "a list of at least one value");
  Choice choice;
  for (const Json& value : *values) choice.values.push_back(with_numbers(value));
  return choice;
}

class SpaceReader {
 public:
  SpaceReader(const YamlDocument& document, bool is_grid) : document_(document), is_grid_(is_grid) {}

  Space space(const Json& map, const std::string& path) const {
    Space space;
    for (const auto& [name, value] : map.items())
      space.push_back({name, domain_of(value, path + "." + path_part(name))});
    std::sort(space.begin(), space.end(), [](const auto& a, const auto& b) { return a.name < b.name; });
    return space;
  }

 private:
  decltype(Hyperparameter::domain) domain_of(const Json& value, const std::string& path) const {
    if (!value.is_object()) return Constant{with_numbers(value)};
    if (!value.contains("type")) return space(value, path);
    const Json& type = value["type"];
    const auto section = [&](const std::vector<std::string>& keys) {
      return YamlSection(document_, path, value, keys);
    };
    if (type == "int") return int_range(section({"type", "minval", "maxval", "count"}), is_grid_);
    if (type == "double") return double_range(section({"type", "minval", "maxval", "count"}), is_grid_);
    if (type == "log") return log_range(section({"type", "minval", "maxval", "base", "count"}), is_grid_);
    if (type == "categorical") return choice_of(section({"type", "vals"}));
    if (type != "const") refuse_type(type, path);
    const YamlSection constant = section({"type", "val"});
    if (!value.contains("val")) constant.fail_value("val", "a value");
    return Constant{with_numbers(value["val"])};
  }

  [[noreturn]] void refuse_type(const Json& type, const std::string& path) const {
    const std::string at = path + ".type";
    const std::string near =
        type.is_string() ? config::nearest_key(type.get<std::string>(), domain_types()) : "";
    raise<ConfigError>(document_.place_of(at), ": ", at, ": got ", json_excerpt(type),
                       ", expected const, int, double, log or categorical",
                       near.empty() ? std::string() : "; did you mean '" + near + "'?",
                       "; a map of constants that has a key type is written {type: const, val: {...}}");
  }

  const YamlDocument& document_;
  bool is_grid_;
};

}  // namespace

Space read_hyperparameters(const YamlDocument& document, bool is_grid) {
  const std::string key = "hyperparameters";
  const auto found = document.value.find(key);
  if (found == document.value.end() || found->is_null()) return {};
  if (!found->is_object()) {
    raise<ConfigError>(document.place_of(key), ": ", key, ": got ", json_excerpt(*found),
                       ", expected a map of names to values");
  }
  if (found->contains("type")) {
    raise<ConfigError>(document.place_of(key + ".type"), ": ", key,
                       ".type: the section itself has no type, expected a map of names to values");
  }
  return SpaceReader(document, is_grid).space(*found, key);
}

}  // namespace deepspeed::trial
