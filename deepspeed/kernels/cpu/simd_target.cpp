#include "deepspeed/kernels/cpu/simd_target.h"

#include <cstdint>

#include "deepspeed/base/error.h"

#include "hwy/highway.h"

namespace deepspeed::kernels {
namespace {

// Returns the bits of the targets that this machine can run, even if use_simd_target() limits the process.
std::vector<int64_t> machine_targets() {
  const int64_t limited_to = hwy::SupportedTargets();
  hwy::SetSupportedTargetsForTest(0);
  const std::vector<int64_t> targets = hwy::SupportedAndGeneratedTargets();
  const bool is_limited = hwy::SupportedTargets() != limited_to;
  hwy::SetSupportedTargetsForTest(is_limited ? limited_to : 0);
  return targets;
}

}  // namespace

std::vector<std::string> simd_targets() {
  std::vector<std::string> names;
  for (const int64_t target : machine_targets()) {
    names.emplace_back(hwy::TargetName(target));
  }
  return names;
}

void use_simd_target(const std::string& name) {
  int64_t chosen = 0;
  for (const int64_t target : machine_targets()) {
    if (name == hwy::TargetName(target)) {
      chosen = target;
    }
  }
  if (chosen == 0 && !name.empty()) {
    std::string known;
    for (const std::string& target : simd_targets()) known += (known.empty() ? "" : ", ") + target;
    raise<UsageError>("no instruction set '", name, "' on this machine, which has ", known,
                      "; \"\" takes the best of them");
  }
  hwy::SetSupportedTargetsForTest(chosen);
  hwy::GetChosenTarget().Update(hwy::SupportedTargets());
}

}  // namespace deepspeed::kernels
