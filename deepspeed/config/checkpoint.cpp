#include "deepspeed/config/checkpoint.h"

namespace deepspeed::config {
namespace {

Field writer_section() {
  return section(
      "writer", "Who writes the files.",
      {
          text("type", "FAST", "The writer.", {one_of({"MOCK", "PYTHON", "FAST"})}),
          integer("io_buffer_size", 64 << 20, "Bytes of the buffer.", {above(0)}),
          boolean("io_buffer_double", true, "Fill one half of the buffer while the other is written."),
          integer("io_multiplier", 1, "Writers a rank.", {at_least(1)}),
          boolean("show_statistics", false, "Log the times of writing."),
          text("data_parallel", nullptr, "Which ranks share the writing.",
               {one_of({"replica", "socket", "machine"})}),
          boolean("decoupled", false, "Write beside the training."),
      },
      {or_null(), not_yet()});
}

}  // namespace

const Table<CheckpointConfig>& checkpoint_table() {
  using C = CheckpointConfig;
  static const Table<C> table({
      entry("tag_validation", &C::tag_validation, "What happens where ranks save under different tags.",
            {one_of({"Warn", "Ignore", "Fail"})}),
      boolean("load_universal", false, "Load a universal checkpoint.", {not_yet()}),
      boolean("use_node_local_storage", false, "Each node saves to a disk of its own.", {not_yet()}),
      section("parallel_write", "Parallel writing.",
              {boolean("pipeline_stage", false, "All data-parallel ranks of a stage write.", {not_yet()})}),
      boolean("checkpoint_serialization", true, "Write the format of torch.save.", {not_yet()}),
      writer_section(),
  });
  return table;
}

}  // namespace deepspeed::config
