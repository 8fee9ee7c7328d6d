// The section checkpoint.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "deepspeed/config/table/table.h"

namespace deepspeed::config {

struct ParallelWriteConfig {
  bool pipeline_stage = false;
};

struct CheckpointWriterConfig {
  std::string type = "FAST";            // MOCK, PYTHON or FAST
  int64_t io_buffer_size = 67'108'864;  // bytes
  bool io_buffer_double = true;
  int64_t io_multiplier = 1;
  bool show_statistics = false;
  std::optional<std::string> data_parallel;  // replica, socket or machine
  bool decoupled = false;
};

struct CheckpointConfig {
  std::string tag_validation = "Warn";  // Warn, Ignore or Fail
  bool load_universal = false;
  bool use_node_local_storage = false;
  ParallelWriteConfig parallel_write;
  bool checkpoint_serialization = true;
  std::optional<CheckpointWriterConfig> writer;
  std::optional<int64_t> keep_last;  // complete tags; none: all of them
};

const Table<CheckpointConfig>& checkpoint_table();

}  // namespace deepspeed::config
