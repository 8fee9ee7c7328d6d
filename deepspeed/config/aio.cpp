#include "deepspeed/config/aio.h"

namespace deepspeed::config {

const Table<AioConfig>& aio_table() {
  using C = AioConfig;
  static const Table<C> table({
      entry("block_size", &C::block_size, "Bytes of one request.",
            {above(0), without_effect("only offloading to NVMe uses it")}),
      entry("queue_depth", &C::queue_depth, "Requests under way.",
            {above(0), without_effect("only offloading to NVMe uses it")}),
      entry("intra_op_parallelism", &C::intra_op_parallelism, "Threads of one transfer.",
            {above(0), without_effect("only offloading to NVMe uses it")}),
      entry("single_submit", &C::single_submit, "Submit requests one at a time.",
            {without_effect("only offloading to NVMe uses it")}),
      entry("overlap_events", &C::overlap_events, "Submit while others complete.",
            {without_effect("only offloading to NVMe uses it")}),
      entry("use_gds", &C::use_gds, "GPUDirect Storage.", {not_yet()}),
  });
  return table;
}

}  // namespace deepspeed::config
