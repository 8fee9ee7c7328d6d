#include "deepspeed/comm/group/node_gather.h"

#include <ATen/ops/empty.h>

#include "deepspeed/base/error.h"
#include "deepspeed/comm/group/joined_work.h"

namespace deepspeed::comm {

// With N nodes of L ranks each, the ranks at place l gather the N inputs of that place. Then the ranks of a
// node exchange their results. They arrive as (L, N, n) and are transposed to (N, L, n).
Work start_all_gather_by_nodes(const NodeGroups& nodes, const at::Tensor& output, const at::Tensor& input) {
  if (!nodes.has_levels()) raise<UsageError>("expected several nodes with several ranks each");
  const int64_t numel = input.numel(), num_nodes = nodes.across.size(), places = nodes.node.size();
  if (output.numel() != num_nodes * places * numel) {
    raise<UsageError>("output has ", output.numel(), " elements, expected ", num_nodes * places * numel, ", ",
                      numel, " of each rank");
  }
  const at::Tensor of_place = at::empty({num_nodes * numel}, input.options());
  nodes.across.all_gather(of_place, input);
  const at::Tensor by_place = at::empty({places * num_nodes * numel}, input.options());
  return joined_work({nodes.node.start_all_gather(by_place, of_place)}, [=] {
    output.view({num_nodes, places, numel}).copy_(by_place.view({places, num_nodes, numel}).transpose(0, 1));
  });
}

}  // namespace deepspeed::comm
