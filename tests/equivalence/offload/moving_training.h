// A training of OddNet that goes on at another stage or on another number of ranks.
#pragma once

#include <cstdint>
#include <ostream>
#include <string>
#include <vector>

#include "deepspeed/base/json.h"

namespace deepspeed::testing {

/// Samples of a step, whatever the number of ranks: 1, 2, 3 or 4 divide it.
inline constexpr int64_t kGlobalBatch = 12;

Json moving_config(int stage, const std::string& precision, bool round_robin = false);

/// Trains for `steps` steps, each on the same samples whatever the number of ranks; loads before and saves
/// after, where the folders are not empty. Returns the mean loss of each step.
std::vector<double> train_part(const Json& config, int world_size, int64_t steps, const std::string& load,
                               const std::string& save);

struct Move {
  int from_stage, from_ranks, to_stage, to_ranks;
  const char* precision;
  bool round_robin = false;
};

std::ostream& operator<<(std::ostream& out, const Move& move);

/// Ten losses each: of the run that moved, against those of the run that stayed where it was.
void expect_the_losses_of_staying(const std::vector<double>& moved, const std::vector<double>& stayed,
                                  const std::string& precision);

}  // namespace deepspeed::testing
