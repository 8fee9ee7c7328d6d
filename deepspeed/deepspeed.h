// The whole public interface: `#include <deepspeed/deepspeed.h>`.
#pragma once

#include "deepspeed/base/error.h"
#include "deepspeed/base/log.h"
#include "deepspeed/comm/functions.h"
#include "deepspeed/comm/init.h"
#include "deepspeed/comm/process_group.h"
#include "deepspeed/config/config.h"
#include "deepspeed/config/training_config.h"
#include "deepspeed/engine/autocast.h"
#include "deepspeed/engine/dataloader.h"
#include "deepspeed/engine/engine.h"
#include "deepspeed/engine/load_weights.h"
#include "deepspeed/engine/seed.h"
#include "deepspeed/engine/tensor_access.h"
#include "deepspeed/initialize.h"
#include "deepspeed/optim/deepspeed_optimizers.h"
#include "deepspeed/precision/autocast.h"
