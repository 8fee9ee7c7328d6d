# Finds LibTorch and defines the imported targets deepspeed::torch (CPU) and deepspeed::torch_cuda.
#
# torch's own find_package(Torch) refuses to configure without nvcc, and with nvcc but without a GPU; this module
# asks for the headers and libraries alone, so that it works with and without a CUDA toolkit and device.
#
# Input:  DEEPSPEED_TORCH_DIR (of CMake, else of the environment), the folder that holds `include/` and `lib/`
#         (site-packages/torch). Else the first such folder in CMAKE_PREFIX_PATH, which may also name its `share/cmake`
#         as torch.utils.cmake_prefix_path does; else DEEPSPEED_TORCH_FALLBACK, where it exists; else the torch of python3.
# Output: DEEPSPEED_TORCH_VERSION, DEEPSPEED_TORCH_LIBRARY_DIRS (folders of the run path).

if(NOT DEEPSPEED_TORCH_DIR)
  set(DEEPSPEED_TORCH_DIR "$ENV{DEEPSPEED_TORCH_DIR}")
endif()
set(_torch_version_header include/torch/headeronly/version.h)
if(NOT DEEPSPEED_TORCH_DIR)
  string(REPLACE ":" ";" _torch_prefixes "$ENV{CMAKE_PREFIX_PATH}")
  foreach(_prefix ${CMAKE_PREFIX_PATH} ${_torch_prefixes})
    foreach(_dir "${_prefix}" "${_prefix}/../..")
      if(NOT DEEPSPEED_TORCH_DIR AND EXISTS "${_dir}/${_torch_version_header}" AND EXISTS "${_dir}/lib/libtorch_cpu.so")
        get_filename_component(DEEPSPEED_TORCH_DIR "${_dir}" ABSOLUTE)
      endif()
    endforeach()
  endforeach()
endif()
if(NOT DEEPSPEED_TORCH_DIR AND EXISTS "${DEEPSPEED_TORCH_FALLBACK}/${_torch_version_header}")
  set(DEEPSPEED_TORCH_DIR "${DEEPSPEED_TORCH_FALLBACK}")
endif()
if(NOT DEEPSPEED_TORCH_DIR)
  execute_process(COMMAND python3 -c "import importlib.util as u; print(u.find_spec('torch').submodule_search_locations[0])"
                  OUTPUT_VARIABLE DEEPSPEED_TORCH_DIR OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
endif()
set(DEEPSPEED_TORCH_DIR "${DEEPSPEED_TORCH_DIR}" CACHE PATH "Folder of LibTorch (site-packages/torch)")
if(NOT EXISTS "${DEEPSPEED_TORCH_DIR}/${_torch_version_header}")
  string(CONCAT _torch_problem "LibTorch was not found at '${DEEPSPEED_TORCH_DIR}'. Pass "
         "-DDEEPSPEED_TORCH_DIR=<site-packages/torch>, or name that folder in CMAKE_PREFIX_PATH; in a "
         "checkout of deepspeed-cpp, scripts/setup.sh fetches it.")
  if(COMMAND deepspeed_problem)  # said with all else that is missing
    deepspeed_problem("${_torch_problem}")
    return()
  endif()
  message(FATAL_ERROR "${_torch_problem}")
endif()

set(_torch_include "${DEEPSPEED_TORCH_DIR}/include")
foreach(_part MAJOR MINOR PATCH)
  file(STRINGS "${_torch_include}/torch/headeronly/version.h" _line REGEX "#define TORCH_VERSION_${_part} ")
  string(REGEX MATCH "[0-9]+$" _torch_${_part} "${_line}")
endforeach()
set(DEEPSPEED_TORCH_VERSION "${_torch_MAJOR}.${_torch_MINOR}.${_torch_PATCH}")

# The wheel's libraries need NVIDIA's run-time libraries, which lie beside it in site-packages/nvidia.
get_filename_component(_site_packages "${DEEPSPEED_TORCH_DIR}" DIRECTORY)
file(GLOB _nvidia_libs LIST_DIRECTORIES true "${_site_packages}/nvidia/*/lib")
set(DEEPSPEED_TORCH_LIBRARY_DIRS "${DEEPSPEED_TORCH_DIR}/lib" ${_nvidia_libs})

if(NOT TARGET deepspeed::torch)
  add_library(deepspeed::torch INTERFACE IMPORTED GLOBAL)
  target_include_directories(deepspeed::torch SYSTEM INTERFACE
    "${_torch_include}" "${_torch_include}/torch/csrc/api/include")
  target_compile_definitions(deepspeed::torch INTERFACE USE_DISTRIBUTED USE_C10D_GLOO)
  target_link_libraries(deepspeed::torch INTERFACE
    "${DEEPSPEED_TORCH_DIR}/lib/libtorch_cpu.so" "${DEEPSPEED_TORCH_DIR}/lib/libc10.so")
  foreach(_dir ${DEEPSPEED_TORCH_LIBRARY_DIRS})
    target_link_options(deepspeed::torch INTERFACE "LINKER:-rpath-link,${_dir}")
    if(NOT SKBUILD AND NOT DEEPSPEED_SOURCES)  # what a wheel holds finds torch beside itself; a release's path is another's
      target_link_options(deepspeed::torch INTERFACE "LINKER:-rpath,${_dir}")
    endif()
  endforeach()

  add_library(deepspeed::torch_cuda INTERFACE IMPORTED GLOBAL)
  target_link_libraries(deepspeed::torch_cuda INTERFACE deepspeed::torch
    "-Wl,--no-as-needed" "${DEEPSPEED_TORCH_DIR}/lib/libtorch_cuda.so" "${DEEPSPEED_TORCH_DIR}/lib/libc10_cuda.so"
    "-Wl,--as-needed")
  # Its headers include NCCL's, and those of CUDA's libraries, of which a toolkit may have none: the wheels that hold the
  # libraries hold the headers too. Searched last, so that a toolkit's own come first.
  file(GLOB _nvidia_includes LIST_DIRECTORIES true "${_site_packages}/nvidia/*/include")
  foreach(_dir ${_nvidia_includes})
    target_compile_options(deepspeed::torch_cuda INTERFACE "$<$<COMPILE_LANGUAGE:CXX>:SHELL:-idirafter ${_dir}>")
  endforeach()
endif()
message(STATUS "LibTorch ${DEEPSPEED_TORCH_VERSION} at ${DEEPSPEED_TORCH_DIR}")
