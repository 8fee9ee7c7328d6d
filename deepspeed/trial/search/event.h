// What a search is told: results and failures of trials.
#pragma once

#include <cstdint>
#include <optional>

#include "deepspeed/base/export.h"
#include "deepspeed/base/json.h"

namespace deepspeed::trial {

/// Says that a trial has reported a metric, or has failed for good.
struct Event {
  enum class Kind { kReport, kFailure };

  Kind kind = Kind::kReport;
  int64_t trial = 0;
  int64_t length = 0;  ///< of training so far, in units of max_length
  double metric = 0;   ///< may be NaN

  static Event report(int64_t trial, int64_t length, double metric) {
    return {Kind::kReport, trial, length, metric};
  }
  static Event failure(int64_t trial) { return {Kind::kFailure, trial, 0, 0}; }

  friend bool operator==(const Event&, const Event&) = default;
};

/// Writes an event as an entry of a journal. A report is {"event": "report", "trial": 3, "length": 16,
/// "metric": 0.5}, a failure {"event": "failure", "trial": 3}.
/// Metrics that JSON has no number for are text: "nan", "inf", "-inf".
DEEPSPEED_API Json json_of(const Event& event);

/// Reads what json_of() writes. Returns nothing for an entry of another kind, which a program may add. Throws
/// UsageError for a report or a failure that lacks a member.
DEEPSPEED_API std::optional<Event> event_of(const Json& entry);

}  // namespace deepspeed::trial
