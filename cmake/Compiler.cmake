# Warnings, sanitizers and the compiler cache, as one interface target that every target of the project links.
find_program(CCACHE_PROGRAM ccache)
if(CCACHE_PROGRAM)
  set(CMAKE_CXX_COMPILER_LAUNCHER ${CCACHE_PROGRAM})
  set(CMAKE_CUDA_COMPILER_LAUNCHER ${CCACHE_PROGRAM})
endif()

add_library(deepspeed_compile_options INTERFACE)
target_compile_options(deepspeed_compile_options INTERFACE
  $<$<COMPILE_LANGUAGE:CXX>:-Wall -Wextra>
  # GCC looks for garbage so seldom: a sixth less time, for a sixth more memory.
  $<$<COMPILE_LANG_AND_ID:CXX,GNU>:SHELL:--param=ggc-min-heapsize=1048576>
  $<$<AND:$<COMPILE_LANGUAGE:CXX>,$<BOOL:${DEEPSPEED_WERROR}>>:-Werror>)
target_include_directories(deepspeed_compile_options INTERFACE $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}>)
if(DEEPSPEED_SANITIZE)
  target_compile_options(deepspeed_compile_options INTERFACE
    -fsanitize=${DEEPSPEED_SANITIZE} -fno-omit-frame-pointer -fno-sanitize=vptr
    # With a sanitizer GCC sees uninitialized reads, e.g. in std::regex, that are none.
    $<$<CXX_COMPILER_ID:GNU>:-Wno-maybe-uninitialized>)
  target_link_options(deepspeed_compile_options INTERFACE -fsanitize=${DEEPSPEED_SANITIZE})
endif()

# Programs' time is that of the library and of torch; optimising them as much would take a tenth of a full build.
add_library(deepspeed_program_options INTERFACE)
target_compile_options(deepspeed_program_options INTERFACE $<$<CONFIG:Release>:-O1>)

if(DEEPSPEED_CUDA)
  if(NOT DEFINED CMAKE_CUDA_ARCHITECTURES)
    set(CMAKE_CUDA_ARCHITECTURES 80-real 90a-real)
  endif()
  set(CMAKE_CUDA_STANDARD 20)
  enable_language(CUDA)
  if(NOT CMAKE_CUDA20_STANDARD_COMPILE_OPTION)  # CMake 3.25 does not know that nvcc has C++20
    set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION -std=c++20)
    set(CMAKE_CUDA20_EXTENSION_COMPILE_OPTION -std=c++20)
  endif()
  find_package(CUDAToolkit REQUIRED)
endif()
