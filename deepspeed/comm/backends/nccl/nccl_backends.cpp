#include <torch/csrc/cuda/nccl.h>
#include <torch/csrc/distributed/c10d/ProcessGroupNCCL.hpp>

#include "deepspeed/base/export.h"
#include "deepspeed/comm/backends/nccl.h"

namespace deepspeed::comm {
namespace {

c10::intrusive_ptr<c10d::Backend> make(const Job& job, const c10::intrusive_ptr<c10d::Store>& store,
                                       const GroupDescription& group) {
  auto options = c10d::ProcessGroupNCCL::Options::create();
  options->timeout = job.timeout;
  // These name the group in c10d's messages and in its flight recorder.
  options->group_name = options->group_desc = group.name;
  options->global_ranks_in_group.assign(group.global_ranks.begin(), group.global_ranks.end());
  return c10::make_intrusive<c10d::ProcessGroupNCCL>(store, group.rank, group.size(), options);
}

NcclVersions versions() {
  const uint64_t packed = torch::cuda::nccl::version();  // 0x2'001c'0009 for 2.28.9
  return {.of_header = {NCCL_MAJOR, NCCL_MINOR},
          .of_torch = {static_cast<int>(packed >> 32), static_cast<int>(packed >> 16 & 0xffff)}};
}

}  // namespace

extern "C" {
DEEPSPEED_API extern const NcclBackends deepspeed_cuda_nccl_backends;
const NcclBackends deepspeed_cuda_nccl_backends{.make = &make, .versions = &versions};
}

}  // namespace deepspeed::comm
