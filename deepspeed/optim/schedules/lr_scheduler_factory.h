// Makes the schedule that the config section `scheduler` names.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "deepspeed/base/json.h"
#include "deepspeed/optim/schedules/lr_scheduler.h"
#include "deepspeed/optim/slices/param_group.h"

namespace deepspeed::optim {

/// Makes the schedule `type`, case-sensitive. It is LRRangeTest, OneCycle, WarmupLR, WarmupDecayLR,
/// WarmupCosineLR, or one of torch's in chained_lr.h. The first rates are written into `groups`, which must
/// outlive the schedule. Throws ConfigError naming `scheduler.type` or `scheduler.params.<key>`, and
/// NotSupportedError for ReduceLROnPlateau.
std::unique_ptr<LrScheduler> make_lr_scheduler(const std::string& type, const Json& params,
                                               std::vector<ParamGroup>& groups);

}  // namespace deepspeed::optim
