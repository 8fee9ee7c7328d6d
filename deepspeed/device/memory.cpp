#include "deepspeed/device/memory.h"

#include <fstream>
#include <string>

#include "deepspeed/base/error.h"

namespace deepspeed::device {
namespace {

// A line of /proc/self/status reads "VmHWM:     12345 kB".
int64_t status_bytes(const std::string& key) {
  std::ifstream file("/proc/self/status");
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with(key + ":")) return std::stoll(line.substr(key.size() + 1)) * 1024;
  }
  raise<IoError>("device.memory", "/proc/self/status has no line ", key, "; is /proc mounted?");
}

}  // namespace

int64_t resident_bytes() { return status_bytes("VmRSS"); }
int64_t peak_resident_bytes() { return status_bytes("VmHWM"); }

bool reset_peak_resident() {
  std::ofstream file("/proc/self/clear_refs");
  file << "5" << std::flush;
  return file.good();
}

}  // namespace deepspeed::device
