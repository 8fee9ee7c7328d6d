// The device's random numbers: the CPU's of the same seed, from a generator of their own.
#pragma once

#include <ATen/core/Generator.h>

namespace deepspeed::simulated {

const at::Generator& default_generator(int device);
at::Generator make_generator(int device);
/// Returns the CPU's generator that makes a device generator's numbers.
at::Generator& cpu_numbers_of(const at::Generator& generator);

}  // namespace deepspeed::simulated
