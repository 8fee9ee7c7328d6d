#include "deepspeed/trial/search/event.h"

#include <cmath>
#include <limits>
#include <string>

#include "deepspeed/base/error.h"
#include "deepspeed/base/json_file.h"

namespace deepspeed::trial {
namespace {

constexpr const char* kReportName = "report";
constexpr const char* kFailureName = "failure";

Json json_of_metric(double metric) {
  if (std::isnan(metric)) return "nan";
  if (std::isinf(metric)) return metric > 0 ? "inf" : "-inf";
  return metric;
}

std::optional<double> metric_of(const Json& value) {
  if (value.is_number()) return value.get<double>();
  if (value == "nan") return std::numeric_limits<double>::quiet_NaN();
  if (value == "inf") return std::numeric_limits<double>::infinity();
  if (value == "-inf") return -std::numeric_limits<double>::infinity();
  return {};
}

bool is_whole_member(const Json& entry, const char* key) {
  return entry.contains(key) && entry[key].is_number_integer();
}

}  // namespace

Json json_of(const Event& event) {
  if (event.kind == Event::Kind::kFailure) return {{"event", kFailureName}, {"trial", event.trial}};
  return {{"event", kReportName},
          {"trial", event.trial},
          {"length", event.length},
          {"metric", json_of_metric(event.metric)}};
}

std::optional<Event> event_of(const Json& entry) {
  if (!entry.is_object() || !entry.contains("event")) return {};
  const bool is_failure = entry["event"] == kFailureName;
  if (!is_failure && entry["event"] != kReportName) return {};
  if (is_failure && is_whole_member(entry, "trial")) return Event::failure(entry["trial"].get<int64_t>());
  const auto metric = metric_of(entry.value("metric", Json()));
  if (is_failure || !is_whole_member(entry, "trial") || !is_whole_member(entry, "length") || !metric) {
    raise<UsageError>("got the event ", json_excerpt(entry),
                      ", expected whole numbers for trial and length, and a metric");
  }
  return Event::report(entry["trial"].get<int64_t>(), entry["length"].get<int64_t>(), *metric);
}

}  // namespace deepspeed::trial
