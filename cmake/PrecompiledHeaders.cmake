# Headers of other projects that nearly every file of a target parses, precompiled. Each file still includes what it
# uses: -DDEEPSPEED_PCH=OFF (presets dev and tidy) checks that.

#
# A header costs every file that has it precompiled, used or not: GCC instantiates what its inline functions need at the
# end of each file (torch's modules: 3 s a file). So the large ones are for the files alone that use them.

set(DEEPSPEED_PCH_TORCH <algorithm> <chrono> <functional> <map> <memory> <optional> <set> <sstream> <string> <vector>
  <nlohmann/json.hpp> <ATen/core/Tensor.h> <torch/csrc/autograd/variable.h> <c10/core/GradMode.h>)
set(DEEPSPEED_PCH_MODULES ${DEEPSPEED_PCH_TORCH} <torch/nn/module.h>)
set(DEEPSPEED_PCH_GTEST <gmock/gmock.h> <gtest/gtest.h>)

function(deepspeed_precompile target)
  if(DEEPSPEED_PCH)
    target_precompile_headers(${target} PRIVATE ${ARGN})
  endif()
endfunction()

# For a target that is compiled like `other`, with the same headers.
function(deepspeed_share_precompiled target other)
  if(DEEPSPEED_PCH)
    target_precompile_headers(${target} REUSE_FROM ${other})
  endif()
endfunction()

# For the parts of programs: examples and benchmarks share one set of torch's headers.
function(deepspeed_precompile_program target)
  target_link_libraries(${target} PRIVATE deepspeed_program_options)
  if(NOT DEEPSPEED_PCH)
    return()
  endif()
  if(NOT TARGET deepspeed_program_headers)
    file(CONFIGURE OUTPUT ${PROJECT_BINARY_DIR}/program_headers.cpp
      CONTENT "// Carries the precompiled headers of programs.\n" @ONLY)
    add_library(deepspeed_program_headers STATIC ${PROJECT_BINARY_DIR}/program_headers.cpp)
    target_link_libraries(deepspeed_program_headers PUBLIC deepspeed_usage deepspeed_compile_options deepspeed_program_options)
    deepspeed_precompile(deepspeed_program_headers ${DEEPSPEED_PCH_MODULES})
  endif()
  deepspeed_share_precompiled(${target} deepspeed_program_headers)
endfunction()
