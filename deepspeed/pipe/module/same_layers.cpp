#include "deepspeed/pipe/module/same_layers.h"

#include <string>
#include <vector>

#include "deepspeed/base/error.h"

namespace deepspeed::pipe {
namespace {

std::string line_of(const ProcessTopology& topology) {
  std::string line = "a topology of";
  for (const std::string& axis : topology.get_axis_names())
    line += message(line.ends_with("of") ? " " : ", ", axis, " ", topology.get_dim(axis));
  return line + "\n";
}

/// Returns a line for each layer, with its class and stage.
std::string lines_of(const PipelineModule& module) {
  std::string lines;
  for (int layer = 0; layer < module.num_layers(); ++layer)
    lines += message(module.describe_layer(layer), " on stage ", module.stage_of(layer), "\n");
  return lines;
}

std::string line(const std::string& lines, size_t number) {
  size_t begin = 0;
  for (; number > 0 && begin < lines.size(); --number) begin = lines.find('\n', begin) + 1;
  return begin < lines.size() ? lines.substr(begin, lines.find('\n', begin) - begin) : "no layer more";
}

/// Compares the lines of all ranks. Throws UsageError on all if two differ, with `what`, the first such line,
/// and `way_out`.
void require_same_lines(const comm::ProcessGroup& all, const std::string& lines, const char* what,
                        const char* way_out) {
  const std::vector<std::string> ranks = all.all_gather_text(lines);
  for (size_t rank = 1; rank < ranks.size(); ++rank) {
    if (ranks[rank] == ranks[0]) continue;
    size_t number = 0;
    while (line(ranks[rank], number) == line(ranks[0], number)) ++number;
    raise<UsageError>(what, " differ between ranks: rank 0 has ", line(ranks[0], number), ", rank ", rank,
                      " has ", line(ranks[rank], number), "; give all ranks the same ", way_out);
  }
}

}  // namespace

void require_same_topology(const comm::ProcessGroup& all, const ProcessTopology& topology) {
  require_same_lines(all, line_of(topology), "the topologies of the PipelineParallelGrid", "axes and sizes");
}

void require_same_layers(const comm::ProcessGroup& all, const PipelineModule& module) {
  require_same_lines(all, line_of(module.topology()) + lines_of(module), "the layers of the PipelineModule",
                     "layers, num_stages or topology, and partition_method");
}

}  // namespace deepspeed::pipe
