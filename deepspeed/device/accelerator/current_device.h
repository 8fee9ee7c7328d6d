// The CUDA devices of the process.
#pragma once

#include <cstdint>
#include <string>

namespace deepspeed::device {

/// Returns how many CUDA devices this process uses: 0 without the CUDA library, without a device, or where
/// the variable DS_ACCELERATOR is "cpu". Throws UsageError where it has another value than "cuda", "cpu" and
/// none.
int num_cuda_devices();
/// Whether DS_ACCELERATOR allows CUDA. Throws UsageError where it has another value than "cuda", "cpu" and
/// none.
bool cuda_is_wanted();

/// Says why num_cuda_devices() is 0, and the way out.
std::string why_no_device();

/// The device on which CUDA tensors of this thread are made. Throws NotSupportedError where there is none.
int current_cuda_device();

/// Makes a CUDA device the thread's current one. Throws NotSupportedError where there is none, UsageError for
/// an index out of range.
void set_cuda_device(int index);

/// Waits until the current CUDA device has done all work that it was given; does nothing without one.
void synchronize();
/// Waits until all CUDA devices that this process has used have done their work. The others stay unused: a
/// wait would make a context there.
void synchronize_used_devices() noexcept;

}  // namespace deepspeed::device
