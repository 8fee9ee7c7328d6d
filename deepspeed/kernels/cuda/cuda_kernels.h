// The table of the CUDA library's kernels.
#pragma once

#include <cstdint>
#include <tuple>

#include <c10/core/Device.h>

#include "deepspeed/base/error.h"
#include "deepspeed/device/accelerator/cuda_library.h"
#include "deepspeed/kernels/arguments/adam_arguments.h"
#include "deepspeed/kernels/arguments/device_arrays.h"
#include "deepspeed/kernels/arguments/op_arrays.h"
#include "deepspeed/kernels/arguments/update_rules.h"

namespace deepspeed::kernels {

/// Holds functions that launch a kernel on the current stream of CUDA device `index`. Each returns null, or
/// the driver's error message. cuda/launches.h describes the arguments.
struct CudaKernels {
  static constexpr const char* kName = "deepspeed_cuda_kernels";
  template <class... Parameters>
  using Launch = const char* (*)(int index, Parameters...);

  Launch<const AdamArrays&, const AdamConstants&> adam;
  Launch<const UpdateArrays&, const UpdateRule&> update;
  Launch<const void*, ElementType, int64_t, double*> sum_of_squares;
  Launch<const double*, double, double, bool, double*> gradient_scale;
  Launch<const QuantizedArray&> quantize, dequantize, add_quantized;
  Launch<float*, float*, uint8_t*, float*, int64_t> compress_signs;
  Launch<const uint8_t*, const float*, float*, int64_t> add_signs;

  template <class... Arrays>
  static std::tuple<Launch<const Arrays&>...> launches_of(ArraysList<Arrays...>);
  decltype(launches_of(OpArrays())) ops;  // one for the arrays of each fused operator
};

/// Calls launch(kernels) with the table of the CUDA library. Throws NotSupportedError without the CUDA
/// library, and Error if the launch fails.
template <class LaunchOne>
void launch_from_table(const at::Device& device, const LaunchOne& launch) {
  const auto* const kernels = device::cuda_table<CudaKernels>();
  if (kernels == nullptr) {
    raise<NotSupportedError>("the elements lie on ", device, ", but ", device::why_no_cuda(),
                             "; or move them to the CPU");
  }
  const char* const error = launch(*kernels);
  if (error != nullptr) raise<Error>("the launch on ", device, " failed: ", error);
}

/// Launches a kernel of the table on `device`. Throws as launch_from_table() does.
template <class... Parameters, class... Arguments>
void launch_on(const at::Device& device, CudaKernels::Launch<Parameters...> CudaKernels::*kernel,
               const Arguments&... arguments) {
  launch_from_table(
      device, [&](const CudaKernels& kernels) { return (kernels.*kernel)(device.index(), arguments...); });
}

/// Launches the kernel of a fused operator on `device`. Throws as launch_from_table() does.
template <class Arrays>
void launch_on(const at::Device& device, const Arrays& arrays) {
  launch_from_table(device, [&](const CudaKernels& kernels) {
    return std::get<CudaKernels::Launch<const Arrays&>>(kernels.ops)(device.index(), arrays);
  });
}

}  // namespace deepspeed::kernels
