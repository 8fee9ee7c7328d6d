// What calls CUDA is a library of its own, libdeepspeed_cuda.so: page locks, kernels and NCCL. It needs
// torch's CUDA libraries, which take gigabytes of disk and a second to load. So it is loaded on machines with
// NVIDIA's driver alone, and the same build runs everywhere. All else about devices goes through torch's
// interfaces that no device owns.
//
// The library exports tables of functions, one a layer. A table names its symbol: Table::kName.
#pragma once

#include <string>

namespace deepspeed::device {

/// Returns a table of the CUDA library; null where the process has none.
const void* find_cuda_table(const char* name);

template <class Table>
const Table* cuda_table() {
  return static_cast<const Table*>(find_cuda_table(Table::kName));
}

/// Says why the process has no CUDA library, and the way out. Empty where it has one.
std::string why_no_cuda();

/// Whether the machine has NVIDIA's driver and DS_ACCELERATOR allows CUDA, but there is no CUDA library.
bool misses_cuda();

/// Takes tables of another library, of a simulated device, from now on. Before the constructors of globals it
/// keeps the CUDA library from being loaded.
void use_cuda_tables(const void* (*find)(const char* name));

}  // namespace deepspeed::device
