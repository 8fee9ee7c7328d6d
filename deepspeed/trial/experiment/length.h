// Lengths of training: how far a trial is trained, and how often it is validated or saved.
#pragma once

#include <cstdint>
#include <string>

#include "deepspeed/base/export.h"

namespace deepspeed::trial {

/// Names what a length counts. A record is one sample.
enum class LengthUnit { kBatches, kRecords, kEpochs };

/// Holds a number of batches, records or epochs.
struct Length {
  int64_t amount = 0;
  LengthUnit unit = LengthUnit::kBatches;

  friend bool operator==(const Length&, const Length&) = default;
};

/// Returns "batches", "records" or "epochs".
DEEPSPEED_API const char* name_of(LengthUnit unit);

/// Returns a length for messages: "16 epochs".
DEEPSPEED_API std::string text_of(const Length& length);

/// Returns a length in batches, rounded down, but at least 1; 0 stays 0. The rule is Determined's. Throws
/// UsageError if `records_per_batch`, or `records_per_epoch` for epochs, is needed and not positive.
DEEPSPEED_API int64_t batches_of(const Length& length, int64_t records_per_epoch, int64_t records_per_batch);

}  // namespace deepspeed::trial
