// The CUDA devices of the process.
#pragma once

#include <cstdint>
#include <string>

namespace deepspeed::device {

/// Returns how many CUDA devices this process uses. It is 0 without the CUDA library, without a device, or if
/// the variable DS_ACCELERATOR is "cpu". Throws UsageError if DS_ACCELERATOR is set to anything but "cuda"
/// and "cpu".
int num_cuda_devices();
/// Returns whether DS_ACCELERATOR allows CUDA. Throws UsageError if it is set to anything but "cuda" and
/// "cpu".
bool cuda_is_wanted();

/// Returns why num_cuda_devices() is 0, and the way out.
std::string why_no_device();

/// Returns the device on which this thread's CUDA tensors are made. Throws NotSupportedError if there is
/// none.
int current_cuda_device();

/// Makes a CUDA device the thread's current one. Throws NotSupportedError if there is no device, UsageError
/// for an index out of range.
void set_cuda_device(int index);

/// Waits until the current CUDA device has done all its work; does nothing without one.
void synchronize();
/// Waits until all CUDA devices that this process has used have done their work. Others are skipped: waiting
/// would create a context there.
void synchronize_used_devices() noexcept;

}  // namespace deepspeed::device
