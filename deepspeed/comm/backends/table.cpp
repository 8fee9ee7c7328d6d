#include "deepspeed/comm/backends/table.h"

#include <algorithm>
#include <atomic>
#include <ranges>
#include <set>

#include "deepspeed/base/env.h"
#include "deepspeed/base/error.h"
#include "deepspeed/base/log.h"
#include "deepspeed/comm/backends/gloo.h"
#include "deepspeed/comm/backends/nccl.h"
#include "deepspeed/comm/backends/shm/share_memory.h"
#include "deepspeed/comm/backends/shm/shm_backend.h"
#include "deepspeed/comm/job/rendezvous.h"
#include "deepspeed/device/accelerator/cuda_library.h"
#include "deepspeed/device/accelerator/current_device.h"

namespace deepspeed::comm {
namespace {

using BackendType = c10d::ProcessGroup::BackendType;

// The first row takes CPU tensors and works everywhere; later rows are faster.
const Backend kBackends[] = {
    {.name = "gloo",
     .also = {kShmBackend},  // shared memory, in front of gloo
     .type = BackendType::GLOO,
     .device = at::kCPU,
     .meets_by_tags = true,
     .suits = [](const Job&) { return true; },
     .make = make_gloo_backend},
    {.name = "nccl",
     .also = {"nccl2", "nccl-lazy"},  // torch 2.15 makes the first of them if "nccl" is asked for
     .type = BackendType::NCCL,
     .device = at::kCUDA,
     .meets_by_tags = false,
     .suits = [](const Job&) { return device::num_cuda_devices() > 0; },
     .make = make_nccl_backend},
};

std::string all_names() {
  std::string names;
  for (const Backend& backend : kBackends)
    names += (names.empty() ? "'" : " or '") + std::string(backend.name) + "'";
  return names;
}

const Backend& suitable_backend(const Job& job) {
  const auto rows = std::ranges::reverse_view(kBackends);
  const Backend& found = *std::ranges::find_if(rows, [&](const Backend& row) { return row.suits(job); });
  if (found.device == at::kCPU) warn_of_missed_cuda(job);
  if (found.device == at::kCPU && env::get("DS_ACCELERATOR") == "cuda") {
    raise<NotSupportedError>("DS_ACCELERATOR is 'cuda', but ", device::why_no_device(),
                             "; or unset it, or set it to 'cpu'");
  }
  return found;
}

}  // namespace

void warn_of_missed_cuda(const Job& job) {
  static std::atomic_flag is_said;
  if (job.rank != 0 || !device::misses_cuda() || is_said.test_and_set()) return;
  log::warning("[comm] this machine has an NVIDIA driver, but the job runs on the CPU: ",
               device::why_no_cuda());
}

const Backend& choose_backend(const Job& job, const std::string& asked) {
  device::num_cuda_devices();  // throws if DS_ACCELERATOR names an unknown accelerator
  if (asked.empty()) return suitable_backend(job);
  if (asked == "mpi") {
    raise<NotSupportedError>(
        "dist_backend is 'mpi': this LibTorch has no MPI (packages of torch never do); use ", all_names(),
        ", which a program that mpirun started can use as well");
  }
  const auto* found = std::ranges::find(kBackends, asked, &Backend::name);
  if (found == std::end(kBackends)) {
    raise<UsageError>("dist_backend is '", asked, "', expected ", all_names());
  }
  return *found;
}

const Backend& backend_of(c10d::ProcessGroup& group) {
  std::set<std::string> names;
  for (const auto& device : group.getDeviceTypes())
    names.insert(group.getBackend(device.type())->getBackendName());
  const auto rows = std::ranges::reverse_view(kBackends);
  const auto found = std::ranges::find_if(rows, [&](const Backend& row) {
    return std::ranges::any_of(
        names, [&](const std::string& name) { return name == row.name || row.also.contains(name); });
  });
  if (found != rows.end()) return *found;
  std::string given;
  for (const std::string& name : names) given += (given.empty() ? "'" : " and '") + name + "'";
  raise<UsageError>("the given process group has ", names.empty() ? "no backend" : "the backend " + given,
                    ", expected ", all_names());
}

const Backend& cpu_backend_of(const Backend& chosen) {
  return chosen.device == at::kCPU ? chosen : kBackends[0];
}

c10::intrusive_ptr<c10d::ProcessGroup> connect(const Backend& chosen, const Job& job,
                                               const GroupDescription& group,
                                               const c10::intrusive_ptr<c10d::Store>& store) {
  auto connected = c10::make_intrusive<c10d::ProcessGroup>(store, group.rank, group.size());
  const auto add = [&](const Backend& row) {
    const auto made = row.make(job, sub_store(store, std::string(row.name) + "/"), group);
    if (row.device != at::kCPU) {
      connected->setBackend(row.device, row.type, made);
      connected->setDefaultBackend(row.type);
      return;
    }
    const auto fastest = share_memory(job, group.global_ranks, made, sub_store(store, "shm/"));
    const auto type = fastest == made ? row.type : BackendType::CUSTOM;
    connected->setBackend(row.device, type, fastest);
    connected->setDefaultBackend(type);
  };
  add(cpu_backend_of(chosen));
  if (chosen.device != at::kCPU) add(chosen);
  return connected;
}

}  // namespace deepspeed::comm
