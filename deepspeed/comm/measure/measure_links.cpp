#include "deepspeed/comm/measure/measure_links.h"

#include <algorithm>

#include "deepspeed/base/error.h"
#include "deepspeed/comm/measure/measure.h"

namespace deepspeed::comm {
namespace {

// A clock's own uncertainty: what is faster was not measured.
constexpr double kLeastMicroseconds = 0.01;

/// Returns what a rank of `group` receives, by a line through the times of two sizes.
LinkSpeed speed_of(const ProcessGroup& all, const ProcessGroup& group, const MeasureLinksOptions& options) {
  all.barrier();
  const auto rows = measure_collectives(group, {.operations = {"all_gather"},
                                                .sizes = {options.small_bytes, options.large_bytes},
                                                .trials = options.trials});
  const auto microseconds = [&](size_t row) {
    return all.all_reduce_scalar(rows[row].milliseconds, ReduceOp::kMax) * 1000;
  };
  const auto bits = [&](size_t row) {
    return 8.0 * double(rows[row].bytes) * (group.size() - 1) / group.size();
  };
  const double small = microseconds(0), large = microseconds(1);
  const double a_microsecond = (bits(1) - bits(0)) / std::max(large - small, kLeastMicroseconds);
  return {.latency_us = std::max(small - bits(0) / a_microsecond, kLeastMicroseconds),
          .gbps = a_microsecond / 1000};
}

}  // namespace

LinkFigures measure_links(const ProcessGroup& all, const ProcessGroup& node, const ProcessGroup& across,
                          const MeasureLinksOptions& options) {
  if (node.size() < 2 || across.size() < 2) {
    raise<UsageError>("there are ", across.size(), " nodes of ", node.size(),
                      " ranks, expected several nodes of several ranks each, whose links are measured; "
                      "DEEPSPEED_RANKS_PER_NODE has one machine stand for several");
  }
  if (options.small_bytes >= options.large_bytes)
    raise<UsageError>("small_bytes ", options.small_bytes, ", expected less than large_bytes, ",
                      options.large_bytes);
  LinkFigures figures{speed_of(all, node, options), speed_of(all, across, options)};
  figures.between_nodes.gbps *= node.size();  // its ranks share the node's link
  return figures;
}

}  // namespace deepspeed::comm
