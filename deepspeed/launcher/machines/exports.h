// Selects the variables that a job's ranks on other machines get.
#pragma once

#include "deepspeed/launcher/plan/environment.h"

namespace deepspeed::launcher {

/// Returns the variables for ranks on other machines. `own` is the launcher's environment. Its variables are
/// included if their names begin as DeepSpeed exports them (MLFLOW, PYTHON, MV2, UCX, NCCL), as this library's
/// do (DEEPSPEED_, DS_, GLOO_), or as Accelerate's do (ACCELERATE_, PARALLELISM_CONFIG_). `folder`, in which
/// the job is started, goes in front of PYTHONPATH. Variables from the user's files, `of_files`, replace
/// others.
Environment exports_of(const Environment& own, const Environment& of_files, const std::string& folder);

}  // namespace deepspeed::launcher
