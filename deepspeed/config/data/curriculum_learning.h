// The section curriculum_learning.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "deepspeed/config/table/table.h"

namespace deepspeed::config {

/// Options that show easy samples first, in the older form.
struct CurriculumLearningConfig {
  bool enabled = false;
  std::optional<std::string> curriculum_type;
  std::optional<int64_t> min_difficulty;
  std::optional<int64_t> max_difficulty;
  std::optional<std::string> schedule_type;
  std::optional<Json> schedule_config;
};

const Table<CurriculumLearningConfig>& curriculum_learning_table();

}  // namespace deepspeed::config
