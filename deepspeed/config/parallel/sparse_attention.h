// The section sparse_attention.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "deepspeed/config/table/table.h"

namespace deepspeed::config {

/// Options of block-sparse attention.
struct SparseAttentionConfig {
  std::string mode = "fixed";
  int64_t block = 16;
  bool different_layout_per_head = false;
  int64_t num_local_blocks = 4;
  int64_t num_global_blocks = 1;
  std::string attention = "bidirectional";
  bool horizontal_global_attention = false;
  int64_t num_different_global_patterns = 1;
  int64_t num_random_blocks = 0;
  std::vector<int64_t> local_window_blocks = {4};
  std::vector<int64_t> global_block_indices = {0};
  std::optional<std::vector<int64_t>> global_block_end_indices;
  int64_t num_sliding_window_blocks = 3;
};

const Table<SparseAttentionConfig>& sparse_attention_table();

}  // namespace deepspeed::config
