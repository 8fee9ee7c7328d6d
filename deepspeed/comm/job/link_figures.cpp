#include "deepspeed/comm/job/link_figures.h"

#include <cmath>
#include <initializer_list>

#include "deepspeed/base/error.h"
#include "deepspeed/base/json_file.h"

namespace deepspeed::comm {
namespace {

// A day, and more than any memory has: anything beyond was not measured.
constexpr double kMostMicroseconds = 86400e6, kMostGbps = 1e6;

void check_keys(const Json& value, const std::string& where, std::initializer_list<const char*> keys) {
  std::string names;
  for (const char* key : keys) names += (names.empty() ? "" : ", ") + std::string(key);
  if (!value.is_object())
    raise<ConfigError>(where, " is ", json_excerpt(value), ", expected an object of ", names);
  for (const char* key : keys)
    if (!value.contains(key))
      raise<ConfigError>(where, " has no ", key, ", expected ", names,
                         "; ds_bench --links writes such a file");
  if (value.size() == keys.size()) return;
  for (const auto& [key, of_key] : value.items()) {
    bool is_known = false;
    for (const char* known : keys) is_known = is_known || key == known;
    if (!is_known) raise<ConfigError>(where, " has a key ", path_part(key), ", expected ", names, " alone");
  }
}

double checked_number(const Json& value, const std::string& where, bool may_be_zero, double most) {
  const double number = value.is_number() ? value.get<double>() : NAN;
  if (number >= 0 && (may_be_zero || number > 0) && number <= most) return number;
  raise<ConfigError>(where, " is ", json_excerpt(value), ", expected a number ",
                     may_be_zero ? "from 0 to " : "above 0 and up to ", most);
}

LinkSpeed speed_of(const Json& value, const std::string& where) {
  check_keys(value, where, {"latency_us", "gbps"});
  return {checked_number(value["latency_us"], where + ".latency_us", true, kMostMicroseconds),
          checked_number(value["gbps"], where + ".gbps", false, kMostGbps)};
}

Json json_of(const LinkSpeed& speed) { return {{"latency_us", speed.latency_us}, {"gbps", speed.gbps}}; }

}  // namespace

Json link_figures_json(const LinkFigures& figures) {
  return {{"within_node", json_of(figures.within_node)}, {"between_nodes", json_of(figures.between_nodes)}};
}

LinkFigures link_figures_of(const Json& value, const std::string& source) {
  check_keys(value, source, {"within_node", "between_nodes"});
  return {speed_of(value["within_node"], source + ": within_node"),
          speed_of(value["between_nodes"], source + ": between_nodes")};
}

LinkFigures read_link_figures(const std::filesystem::path& path) {
  return link_figures_of(read_json_file(path), path.string());
}

}  // namespace deepspeed::comm
