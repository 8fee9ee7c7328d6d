// Determined's way of training for C++ programs: `#include <deepspeed/trial.h>` (docs/trial.md).
#pragma once

#include "deepspeed/deepspeed.h"
#include "deepspeed/trial/trainer/context.h"
#include "deepspeed/trial/trainer/trainer.h"
#include "deepspeed/trial/trainer/trial.h"
