#include "deepspeed/pipe/engine/same_layers.h"

#include <string>
#include <vector>

#include "deepspeed/base/error.h"

namespace deepspeed::pipe {
namespace {

/// Describes each layer in a line.
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

}  // namespace

void require_same_layers(const comm::ProcessGroup& all, const PipelineModule& module) {
  const std::vector<std::string> ranks = all.all_gather_text(lines_of(module));
  for (size_t rank = 1; rank < ranks.size(); ++rank) {
    if (ranks[rank] == ranks[0]) continue;
    size_t number = 0;
    while (line(ranks[rank], number) == line(ranks[0], number)) ++number;
    raise<UsageError>("the layers of the PipelineModule differ between ranks: rank 0 has ",
                      line(ranks[0], number), ", rank ", rank, " has ", line(ranks[rank], number),
                      "; give all ranks the same layers, num_stages and partition_method");
  }
}

}  // namespace deepspeed::pipe
