#include "deepspeed/comm/backends/nccl.h"

#include <utility>

#include "deepspeed/base/env.h"
#include "deepspeed/base/error.h"
#include "deepspeed/device/accelerator/cuda_library.h"
#include "deepspeed/device/accelerator/current_device.h"

namespace deepspeed::comm {
namespace {

// Makes NCCL's watchdog only abort the communicator when an operation times out (mode 2). By default it ends
// the process. The device continues, and ProcessGroup::check() and the next collective throw. The watchdog
// aborts at once, without a dump of the flight recorder, which may take minutes and delays the end of the
// process by eight minutes. There is also no monitor that ends the process meanwhile.
void configure_watchdog() {
  constexpr std::pair<const char*, const char*> kSettings[] = {{"TORCH_NCCL_ASYNC_ERROR_HANDLING", "2"},
                                                               {"TORCH_NCCL_DUMP_ON_TIMEOUT", "0"},
                                                               {"TORCH_NCCL_WAIT_TIMEOUT_DUMP_MILSEC", "100"},
                                                               {"TORCH_NCCL_ENABLE_MONITORING", "0"}};
  for (const auto& [name, value] : kSettings)
    if (!env::get(name)) env::set(name, value);
}

void check_versions(const NcclVersions& versions) {
  const auto& [built, runs] = versions;
  if (built == runs) return;
  raise<NotSupportedError>("this library was built with the header of NCCL ", built[0], ".", built[1],
                           ", and the torch that runs with NCCL ", runs[0], ".", runs[1],
                           ": build the library again with this torch");
}

}  // namespace

c10::intrusive_ptr<c10d::Backend> make_nccl_backend(const Job& job,
                                                    const c10::intrusive_ptr<c10d::Store>& store,
                                                    const GroupDescription& group) {
  const int devices = device::num_cuda_devices();
  if (devices == 0) {
    raise<NotSupportedError>("dist_backend is 'nccl', but ", device::why_no_device(), "; or use 'gloo'");
  }
  const auto& table = *device::cuda_table<NcclBackends>();
  check_versions(table.versions());
  configure_watchdog();
  device::set_cuda_device(job.local_rank % devices);
  return table.make(job, store, group);
}

}  // namespace deepspeed::comm
