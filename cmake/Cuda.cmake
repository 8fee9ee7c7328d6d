# Finds CUDA's compiler, and says whether the part of the library that calls CUDA is built.
#
# Input:  DEEPSPEED_CUDA: ON, OFF or auto.
#         DEEPSPEED_NVCC: the compiler; empty for none. By default the one on PATH, or that of $CUDA_HOME.
#         CMAKE_CUDA_ARCHITECTURES, of CMake or the environment's CUDAARCHS.
# Output: DEEPSPEED_HAS_CUDA, DEEPSPEED_CUDA_ARCHITECTURES ("" without it).
set(DEEPSPEED_HAS_CUDA OFF)
set(DEEPSPEED_CUDA_ARCHITECTURES "")
if(NOT DEEPSPEED_CUDA)
  return()
endif()

set(_why_not "")
file(STRINGS "${DEEPSPEED_TORCH_DIR}/version.py" _torch_cuda REGEX "^cuda(:.*)? = '")
string(REGEX MATCH "[0-9]+" _torch_cuda_major "${_torch_cuda}")
if(NOT DEFINED DEEPSPEED_NVCC)
  find_program(DEEPSPEED_NVCC nvcc PATHS "$ENV{CUDA_HOME}/bin" NO_CMAKE_SYSTEM_PATH NO_CMAKE_INSTALL_PREFIX)
endif()
if(DEEPSPEED_NVCC)
  set(CMAKE_CUDA_COMPILER "${DEEPSPEED_NVCC}")
else()
  set(_why_not "no nvcc was found on PATH or in $CUDA_HOME/bin")
endif()
if(NOT EXISTS "${DEEPSPEED_TORCH_DIR}/lib/libtorch_cuda.so" OR NOT _torch_cuda_major)
  set(_why_not "the torch at ${DEEPSPEED_TORCH_DIR} has no CUDA")
elseif(NOT _why_not)
  if(NOT DEFINED CMAKE_CUDA_ARCHITECTURES AND NOT DEFINED ENV{CUDAARCHS})
    set(CMAKE_CUDA_ARCHITECTURES 80-real 90)  # from the second one, later devices make their own code
  endif()
  set(CMAKE_CUDA_STANDARD 20)
  if(CCACHE_PROGRAM)
    set(CMAKE_CUDA_COMPILER_LAUNCHER ${CCACHE_PROGRAM})
  endif()
  enable_language(CUDA)
  if(NOT CMAKE_CUDA20_STANDARD_COMPILE_OPTION)  # CMake 3.25 does not know that nvcc has C++20
    set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION -std=c++20)
    set(CMAKE_CUDA20_EXTENSION_COMPILE_OPTION -std=c++20)
  endif()
  string(REGEX MATCH "^[0-9]+" _nvcc_major "${CMAKE_CUDA_COMPILER_VERSION}")
  if(NOT _nvcc_major EQUAL _torch_cuda_major)
    set(_why_not "${CMAKE_CUDA_COMPILER} is of CUDA ${_nvcc_major}, and torch of CUDA ${_torch_cuda_major}")
  endif()
endif()

if(_why_not AND DEEPSPEED_CUDA STREQUAL auto)
  message(STATUS "CUDA is left out: ${_why_not}")
elseif(_why_not)
  message(FATAL_ERROR "DEEPSPEED_CUDA is ${DEEPSPEED_CUDA}, but ${_why_not}")
else()
  find_package(CUDAToolkit REQUIRED)
  set(DEEPSPEED_HAS_CUDA ON)
  string(REPLACE ";" " " DEEPSPEED_CUDA_ARCHITECTURES "${CMAKE_CUDA_ARCHITECTURES}")
  message(STATUS "CUDA ${CMAKE_CUDA_COMPILER_VERSION} for ${DEEPSPEED_CUDA_ARCHITECTURES}")
endif()
