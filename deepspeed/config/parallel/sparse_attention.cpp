#include "deepspeed/config/parallel/tables.h"

namespace deepspeed::config {

std::vector<Field> sparse_attention_keys() {
  return {
      text("mode", "fixed", "The layout.",
           {one_of({"dense", "fixed", "variable", "bigbird", "bslongformer"})}),
      integer("block", 16, "The side of a block.", {above(0)}),
      boolean("different_layout_per_head", false, "A layout for each head."),
      integer("num_local_blocks", 4, "Blocks of a local window.", {above(0)}),
      integer("num_global_blocks", 1, "Global blocks.", {at_least(0)}),
      text("attention", "bidirectional", "Whether positions see later ones.",
           {one_of({"bidirectional", "unidirectional"})}),
      boolean("horizontal_global_attention", false, "Global blocks attend to all."),
      integer("num_different_global_patterns", 1, "Patterns of global blocks.", {above(0)}),
      integer("num_random_blocks", 0, "Random blocks a row.", {at_least(0)}),
      integers("local_window_blocks", Json::array({4}), "Blocks of each local window."),
      integers("global_block_indices", Json::array({0}), "Global blocks, or where their ranges begin."),
      integers("global_block_end_indices", nullptr, "Where the ranges of global blocks end."),
      integer("num_sliding_window_blocks", 3, "Blocks of the sliding window.", {above(0)}),
  };
}

}  // namespace deepspeed::config
