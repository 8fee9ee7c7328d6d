#include "deepspeed/config/batch.h"

#include "deepspeed/base/error.h"

namespace deepspeed::config {
namespace {

constexpr const char* kTrain = "train_batch_size";
constexpr const char* kMicro = "train_micro_batch_size_per_gpu";
constexpr const char* kSteps = "gradient_accumulation_steps";

void require_positive(const char* key, const std::optional<int64_t>& size) {
  if (size && *size < 1) raise<ConfigError>(key, ": got ", *size, ", expected a whole number of at least 1");
}

int64_t product(int64_t micro, int64_t steps, int64_t world) {
  int64_t result = 0;
  if (__builtin_mul_overflow(micro, steps, &result) || __builtin_mul_overflow(result, world, &result)) {
    raise<ConfigError>(kTrain, ": ", kMicro, " ", micro, " * ", kSteps, " ", steps,
                       " * data-parallel world size ", world,
                       " does not fit 64 bits, expected smaller sizes");
  }
  return result;
}

/// Returns `total` divided by `divisor` and by `world`, rounded down each time. Throws ConfigError if that is
/// 0.
int64_t share(const char* key, int64_t total, const char* divisor_key, int64_t divisor, int64_t world) {
  const int64_t result = total / divisor / world;
  if (result < 1) {
    raise<ConfigError>(key, ": inferred as 0 from ", kTrain, " ", total, ", ", divisor_key, " ", divisor,
                       " and data-parallel world size ", world, ", expected at least 1: raise ", kTrain);
  }
  return result;
}

}  // namespace

BatchSizes resolve_batch_sizes(const BatchSizes& given, int64_t world) {
  if (world < 1) raise<UsageError>("data-parallel world size: got ", world, ", expected at least 1");
  auto [train, micro, steps] = given;
  require_positive(kTrain, train);
  require_positive(kMicro, micro);
  require_positive(kSteps, steps);
  if (!train && !micro) {
    raise<ConfigError>(kTrain, ": got neither it nor ", kMicro, ", expected at least one of them");
  }
  if (!steps) steps = train && micro ? share(kSteps, *train, kMicro, *micro, world) : 1;
  if (!micro) micro = share(kMicro, *train, kSteps, *steps, world);
  const int64_t whole = product(*micro, *steps, world);
  if (train && *train != whole) {
    raise<ConfigError>(kTrain, ": got ", *train, ", expected ", whole, " = ", kMicro, " ", *micro, " * ",
                       kSteps, " ", *steps, " * data-parallel world size ", world);
  }
  return {whole, micro, steps};
}

}  // namespace deepspeed::config
