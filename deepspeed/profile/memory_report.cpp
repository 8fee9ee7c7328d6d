#include "deepspeed/profile/memory_report.h"

#include <iomanip>
#include <sstream>

#include "deepspeed/device/accelerator/memory.h"

namespace deepspeed::profile {
namespace {

double gigabytes(int64_t bytes) { return static_cast<double>(bytes) / static_cast<double>(int64_t{1} << 30); }

}  // namespace

std::string memory_in_use() {
  std::ostringstream text;
  text << std::fixed << std::setprecision(2) << "allocated " << gigabytes(device::cuda_allocated_bytes())
       << " GB, at most " << gigabytes(device::cuda_peak_allocated_bytes()) << " GB; process "
       << gigabytes(device::resident_bytes()) << " GB, at most " << gigabytes(device::peak_resident_bytes())
       << " GB";
  return text.str();
}

}  // namespace deepspeed::profile
