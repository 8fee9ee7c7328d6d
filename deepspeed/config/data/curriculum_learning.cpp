#include "deepspeed/config/data/tables.h"

namespace deepspeed::config {

const Table<CurriculumLearningConfig>& curriculum_learning_table() {
  using C = CurriculumLearningConfig;
  static const Table<C> table({
      entry("enabled", &C::enabled, "Turns the section on.", {not_yet()}),
      entry("curriculum_type", &C::curriculum_type, "What grows: seqlen."),
      entry("min_difficulty", &C::min_difficulty, "The difficulty at the start."),
      entry("max_difficulty", &C::max_difficulty, "The difficulty at the end."),
      entry("schedule_type", &C::schedule_type, "How it grows.",
            {one_of({"fixed_discrete", "fixed_root", "fixed_linear", "custom"})}),
      entry("schedule_config", &C::schedule_config,
            "The arguments of that: total_curriculum_step, difficulty_step, ..."),
  });
  return table;
}

}  // namespace deepspeed::config
