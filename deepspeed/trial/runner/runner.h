// Runs an experiment on this machine: each trial is a job of the launcher, and several run side by side.
#pragma once

#include <cstdint>
#include <filesystem>
#include <iosfwd>
#include <string>

#include "deepspeed/base/export.h"
#include "deepspeed/trial/experiment/experiment.h"
#include "deepspeed/trial/search/searcher.h"

namespace deepspeed::trial {

/// Holds how an experiment is run.
struct RunOptions {
  std::filesystem::path folder;  ///< all that the search needs to go on lies here
  int64_t slots = 1;             ///< devices of this machine, which trials share
  std::string launcher;          ///< path of the program `deepspeed`
};

/// Runs the search to its end and returns it. A search that was killed goes on where its journal ends; trials
/// go on from their latest checkpoints. A trial that fails is started again, at most max_restarts times.
/// Writes `result.json` into the folder. Throws UsageError if the experiment names no program, or a trial
/// needs more slots than there are, and what Journal throws.
DEEPSPEED_API Searcher run_experiment(const Experiment& experiment, const RunOptions& options,
                                      std::ostream& out);

/// Prints the trials, the best first.
DEEPSPEED_API void print_trials(const Searcher& searcher, const SearcherConfig& config, std::ostream& out);

}  // namespace deepspeed::trial
