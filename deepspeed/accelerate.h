// Accelerate's way of working for C++ programs: `#include <deepspeed/accelerate.h>` (docs/accelerate.md).
#pragma once

#include "deepspeed/accelerate/accelerator/accelerator.h"
#include "deepspeed/accelerate/config/cluster_config.h"
#include "deepspeed/accelerate/plugin/deepspeed_plugin.h"
#include "deepspeed/deepspeed.h"
