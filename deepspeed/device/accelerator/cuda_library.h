// All code that calls CUDA is in a separate library, libdeepspeed_cuda.so: page locks, kernels and NCCL. It
// needs torch's CUDA libraries, which take gigabytes of disk and a second to load. It is therefore loaded
// only on machines with NVIDIA's driver, and the same build runs everywhere. Everything else about devices
// uses torch's device-independent interfaces.
//
// The library exports tables of functions, one per layer. A table names its symbol: Table::kName.
#pragma once

#include <string>

namespace deepspeed::device {

/// Returns the CUDA library's table `name`; null if the process has not loaded the library.
const void* find_cuda_table(const char* name);

template <class Table>
const Table* cuda_table() {
  return static_cast<const Table*>(find_cuda_table(Table::kName));
}

/// Returns why the process has no CUDA library, and the way out. Returns "" if it has one.
std::string why_no_cuda();

/// Returns whether CUDA is available and allowed, but the CUDA library is missing. Available means that
/// NVIDIA's driver is installed; DS_ACCELERATOR may forbid CUDA.
bool misses_cuda();

/// Uses the tables of another library, for a simulated device, from now on. If called before the constructors
/// of globals it prevents loading the CUDA library.
void use_cuda_tables(const void* (*find)(const char* name));

}  // namespace deepspeed::device
