// How fast the links of a job are, as ds_bench measures them and writes them to a file: by these figures
// groups choose how their collectives go where their ranks are on several nodes.
#pragma once

#include <filesystem>

#include "deepspeed/base/export.h"
#include "deepspeed/base/json.h"

namespace deepspeed::comm {

/// Describes a kind of link: n bytes take latency_us + 8 n / (1000 gbps) microseconds.
struct LinkSpeed {
  double latency_us = 0;
  double gbps = 0;  // gigabits a second
};

/// Holds what was measured.
struct LinkFigures {
  LinkSpeed within_node;    // what one rank receives while all ranks of its node exchange
  LinkSpeed between_nodes;  // what a node receives in all while all of its ranks exchange with other nodes
};

/// Returns the figures as a file holds them.
DEEPSPEED_API Json link_figures_json(const LinkFigures& figures);

/// Reads the figures of a file. Throws IoError where it cannot be read and ConfigError, which names it, for
/// what is no JSON, a key that is missing or unknown, and a number that no link can have.
DEEPSPEED_API LinkFigures read_link_figures(const std::filesystem::path& path);

/// Reads figures that link_figures_json() made or a person wrote. source: names them in errors.
LinkFigures link_figures_of(const Json& value, const std::string& source);

}  // namespace deepspeed::comm
