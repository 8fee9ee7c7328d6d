#include "deepspeed/config/training/tables.h"

namespace deepspeed::config {
namespace {

const Table<ParallelWriteConfig>& parallel_write_table() {
  using C = ParallelWriteConfig;
  static const Table<C> table({
      entry("pipeline_stage", &C::pipeline_stage, "All data-parallel ranks of a stage write.",
            {accepted_if([](const Json& value) { return value.is_boolean(); }, "not a word or a number"),
             not_yet()}),
  });
  return table;
}

const Table<CheckpointWriterConfig>& writer_table() {
  using C = CheckpointWriterConfig;
  static const Table<C> table({
      entry("type", &C::type,
            "FAST writes past the page cache, several blocks at once; PYTHON by plain write(); MOCK nothing "
            "at all.",
            {one_of({"MOCK", "PYTHON", "FAST"})}),
      entry("io_buffer_size", &C::io_buffer_size, "Bytes of a buffer.", {above(0), per_rank()}),
      entry("io_buffer_double", &C::io_buffer_double, "Fill one buffer while another is written.",
            {per_rank()}),
      entry("io_multiplier", &C::io_multiplier, "Files that a rank writes at once.",
            {at_least(1), per_rank()}),
      entry("show_statistics", &C::show_statistics, "Log bytes and times of writing.", {per_rank()}),
      entry("data_parallel", &C::data_parallel, "Which ranks share the writing of one file.",
            {one_of({"replica", "socket", "machine"}), not_yet()}),
      entry("decoupled", &C::decoupled, "Copy to host memory, then write beside the training."),
  });
  return table;
}

}  // namespace

const Table<CheckpointConfig>& checkpoint_table() {
  using C = CheckpointConfig;
  static const Table<C> table({
      entry("tag_validation", &C::tag_validation, "What happens where ranks save under different tags.",
            {one_of({"Warn", "Ignore", "Fail"})}),
      entry("load_universal", &C::load_universal, "Load a universal checkpoint."),
      entry("use_node_local_storage", &C::use_node_local_storage, "Each node saves to a disk of its own.",
            {not_yet()}),
      section_entry("parallel_write", &C::parallel_write, parallel_write_table(), "Parallel writing."),
      entry("checkpoint_serialization", &C::checkpoint_serialization, "Write the format of torch.save.",
            {not_yet()}),
      section_entry("writer", &C::writer, writer_table(), "How files are written; null: as FAST.",
                    {or_null()}),
      entry("keep_last", &C::keep_last,
            "Of the tags that training wrote in turn, how many a save leaves; null: all.", {at_least(1)}),
  });
  return table;
}

}  // namespace deepspeed::config
