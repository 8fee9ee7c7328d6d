#include "deepspeed/trial/experiment/length.h"

#include <algorithm>

#include "deepspeed/base/error.h"
#include "deepspeed/base/message.h"

namespace deepspeed::trial {

const char* name_of(LengthUnit unit) {
  switch (unit) {
    case LengthUnit::kRecords:
      return "records";
    case LengthUnit::kEpochs:
      return "epochs";
    default:
      return "batches";
  }
}

std::string text_of(const Length& length) { return message(length.amount, " ", name_of(length.unit)); }

int64_t batches_of(const Length& length, int64_t records_per_epoch, int64_t records_per_batch) {
  if (length.unit == LengthUnit::kBatches || length.amount == 0) return length.amount;
  if (records_per_batch <= 0) {
    raise<UsageError>(text_of(length), " in batches: got ", records_per_batch,
                      " records a batch, expected 1 or more");
  }
  int64_t records = length.amount;
  if (length.unit == LengthUnit::kEpochs) {
    if (records_per_epoch <= 0) {
      raise<UsageError>(text_of(length), " in batches: got ", records_per_epoch,
                        " records an epoch, expected 1 or more");
    }
    if (__builtin_mul_overflow(length.amount, records_per_epoch, &records)) {
      raise<UsageError>(text_of(length), " of ", records_per_epoch,
                        " records: more records than 64 bits hold");
    }
  }
  return std::max<int64_t>(records / records_per_batch, 1);
}

}  // namespace deepspeed::trial
