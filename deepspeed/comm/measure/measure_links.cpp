#include "deepspeed/comm/measure/measure_links.h"

#include <algorithm>

#include "deepspeed/base/error.h"
#include "deepspeed/comm/measure/measure.h"

namespace deepspeed::comm {
namespace {

// Anything shorter is below the clock's resolution.
constexpr double kLeastMicroseconds = 0.01;
// The large size counts as taking longer than the small one by at least this part of its own time. On a busy
// machine the small one may take longer by chance, and a line through both could give any speed.
constexpr double kLeastPart = 1.0 / 8;

/// Returns the speed at which a rank of `group` receives while all groups within `all` gather.
LinkSpeed speed_of(const ProcessGroup& all, const ProcessGroup& group, const MeasureLinksOptions& options) {
  all.barrier();
  const auto rows = measure_collectives(group, {.operations = {"all_gather"},
                                                .sizes = {options.small_bytes, options.large_bytes},
                                                .trials = options.trials});
  const auto taken = [&](size_t row) -> TakenTime {
    return {.bits = 8.0 * double(rows[row].bytes) * (group.size() - 1) / group.size(),
            .microseconds = all.all_reduce_scalar(rows[row].milliseconds, ReduceOp::kMax) * 1000};
  };
  const TakenTime small = taken(0);
  return speed_by_line(small, taken(1));
}

}  // namespace

LinkSpeed speed_by_line(const TakenTime& small, const TakenTime& large) {
  const double longer = std::max(
      {large.microseconds - small.microseconds, large.microseconds * kLeastPart, kLeastMicroseconds});
  const double a_microsecond = (large.bits - small.bits) / longer;
  return {.latency_us = std::max(small.microseconds - small.bits / a_microsecond, kLeastMicroseconds),
          .gbps = a_microsecond / 1000};
}

LinkFigures measure_links(const ProcessGroup& all, const ProcessGroup& node, const ProcessGroup& across,
                          const MeasureLinksOptions& options) {
  if (node.size() < 2 || across.size() < 2) {
    raise<UsageError>("there are ", across.size(), " nodes of ", node.size(),
                      " ranks, expected several nodes of several ranks each, whose links are measured; "
                      "DEEPSPEED_RANKS_PER_NODE lets one machine stand for several");
  }
  if (options.small_bytes >= options.large_bytes)
    raise<UsageError>("small_bytes ", options.small_bytes, ", expected less than large_bytes, ",
                      options.large_bytes);
  LinkFigures figures{speed_of(all, node, options), speed_of(all, across, options)};
  figures.between_nodes.gbps *= node.size();  // the ranks of a node share its link
  return figures;
}

}  // namespace deepspeed::comm
