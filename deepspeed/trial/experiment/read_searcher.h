// Reads the section searcher of an experiment.
#pragma once

#include <string>

#include "deepspeed/trial/experiment/searcher_config.h"
#include "deepspeed/trial/experiment/yaml_section.h"

namespace deepspeed::trial {

/// Holds the section, and the key that gave the length: max_length, or max_time.
struct ReadSearcher {
  SearcherConfig config;
  std::string length_key;
};

/// Reads the section. Throws ConfigError with file, line and key. A grid's max_trials is left at 1.
ReadSearcher read_searcher(const YamlSection& experiment);

}  // namespace deepspeed::trial
