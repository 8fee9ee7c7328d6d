// Reads the section hyperparameters of an experiment.
#pragma once

#include "deepspeed/trial/experiment/hyperparameter.h"
#include "deepspeed/yaml/yaml_file.h"

namespace deepspeed::trial {

/// Reads the map `hyperparameters` of the document; an absent one is an empty space. Maps with a `type` are
/// domains, other maps are nested spaces, and everything else is a constant. In constants and choices text
/// such as 1e-3 is a number, as it is for Determined. If `is_grid`, ranges need a count. Throws ConfigError
/// with file, line and key.
Space read_hyperparameters(const YamlDocument& document, bool is_grid);

}  // namespace deepspeed::trial
