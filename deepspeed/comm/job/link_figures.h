// Holds how fast a job's links are, as ds_bench measures them and writes them to a file. Groups on several
// nodes use these figures to choose how their collectives communicate.
#pragma once

#include <filesystem>

#include "deepspeed/base/export.h"
#include "deepspeed/base/json.h"

namespace deepspeed::comm {

/// Describes a kind of link: n bytes take latency_us + 8 n / (1000 gbps) microseconds.
struct LinkSpeed {
  double latency_us = 0;
  double gbps = 0;  // gigabits per second
};

/// Holds the measured speeds.
struct LinkFigures {
  LinkSpeed within_node;  // received by one rank while all ranks of its node exchange data
  LinkSpeed
      between_nodes;  // received by a node in total while all of its ranks exchange data with other nodes
};

/// Returns the figures as JSON, in the form that a file has.
DEEPSPEED_API Json link_figures_json(const LinkFigures& figures);

/// Reads the figures from a file. Throws IoError if it cannot be read. Throws ConfigError, naming it, for
/// invalid JSON, a missing or unknown key, or an impossible number.
DEEPSPEED_API LinkFigures read_link_figures(const std::filesystem::path& path);

/// Returns the figures in a JSON value, written by link_figures_json() or by a person. Throws ConfigError
/// like read_link_figures(), naming `source`.
LinkFigures link_figures_of(const Json& value, const std::string& source);

}  // namespace deepspeed::comm
