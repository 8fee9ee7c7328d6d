// Which variables of the place where a job is started its ranks on other machines get.
#pragma once

#include "deepspeed/launcher/plan/environment.h"

namespace deepspeed::launcher {

/// Returns the variables of `own` whose names begin as DeepSpeed hands them on (MLFLOW, PYTHON, MV2, UCX,
/// NCCL) or as this library's do (DEEPSPEED_, DS_, GLOO_); PYTHONPATH with `folder`, where the job is
/// started, in front; and all of `of_files`, which come last.
Environment exports_of(const Environment& own, const Environment& of_files, const std::string& folder);

}  // namespace deepspeed::launcher
