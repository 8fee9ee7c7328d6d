// Experiments for tests, made of a few lines of YAML.
#pragma once

#include <string>

#include "deepspeed/trial/experiment/experiment.h"
#include "deepspeed/yaml/yaml_file.h"

namespace deepspeed::testing {

inline trial::Experiment experiment_of(const std::string& yaml) {
  return trial::parse_experiment(parse_yaml(yaml, "experiment.yaml"));
}

/// Returns an experiment with one hyperparameter, a learning rate. `searcher` has lines "key: value, ..." for
/// a map in braces.
inline trial::Experiment search_of(const std::string& searcher) {
  return experiment_of("hyperparameters: {lr: {type: log, base: 10, minval: -5, maxval: -1, count: 7}}\n" +
                       std::string("searcher: {metric: loss, ") + searcher + "}\n");
}

}  // namespace deepspeed::testing
