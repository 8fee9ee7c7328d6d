#include "deepspeed/config/parallel/tables.h"

namespace deepspeed::config {

const Table<SparseAttentionConfig>& sparse_attention_table() {
  using C = SparseAttentionConfig;
  static const Table<C> table({
      entry("mode", &C::mode, "The layout.",
            {one_of({"dense", "fixed", "variable", "bigbird", "bslongformer"})}),
      entry("block", &C::block, "The side of a block.", {above(0)}),
      entry("different_layout_per_head", &C::different_layout_per_head, "A layout for each head."),
      entry("num_local_blocks", &C::num_local_blocks, "Blocks of a local window.", {above(0)}),
      entry("num_global_blocks", &C::num_global_blocks, "Global blocks.", {at_least(0)}),
      entry("attention", &C::attention, "Whether positions see later ones.",
            {one_of({"bidirectional", "unidirectional"})}),
      entry("horizontal_global_attention", &C::horizontal_global_attention, "Global blocks attend to all."),
      entry("num_different_global_patterns", &C::num_different_global_patterns, "Patterns of global blocks.",
            {above(0)}),
      entry("num_random_blocks", &C::num_random_blocks, "Random blocks a row.", {at_least(0)}),
      entry("local_window_blocks", &C::local_window_blocks, "Blocks of each local window."),
      entry("global_block_indices", &C::global_block_indices, "Global blocks, or where their ranges begin."),
      entry("global_block_end_indices", &C::global_block_end_indices,
            "Where the ranges of global blocks end."),
      entry("num_sliding_window_blocks", &C::num_sliding_window_blocks, "Blocks of the sliding window.",
            {above(0)}),
  });
  return table;
}

}  // namespace deepspeed::config
