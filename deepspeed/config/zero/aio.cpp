#include "deepspeed/config/zero/tables.h"

namespace deepspeed::config {
namespace {

Option to_nvme() {
  return effective_where(
      {"zero_optimization.offload_param.device", "zero_optimization.offload_optimizer.device"}, {"nvme"},
      "only offloading to NVMe uses it");
}

}  // namespace

const Table<AioConfig>& aio_table() {
  using C = AioConfig;
  static const Table<C> table({
      entry("block_size", &C::block_size, "Bytes of one request; for offloading to NVMe a multiple of 4096.",
            {above(0), to_nvme()}),
      entry("queue_depth", &C::queue_depth, "Requests under way.", {above(0), to_nvme()}),
      // The alias is the key's former name, used in configs for older versions.
      entry("intra_op_parallelism", &C::intra_op_parallelism, "Threads of one transfer.",
            {above(0), to_nvme(), alias("thread_count")}),
      entry("single_submit", &C::single_submit, "Submit requests one at a time.", {to_nvme()}),
      entry("overlap_events", &C::overlap_events, "Submit while others complete.", {to_nvme()}),
      entry("use_gds", &C::use_gds, "GPUDirect Storage.", {not_yet()}),
  });
  return table;
}

}  // namespace deepspeed::config
