# Warnings, sanitizers and the compiler cache, as one interface target that every target of the project links.
find_program(CCACHE_PROGRAM ccache)
if(CCACHE_PROGRAM)
  set(CMAKE_CXX_COMPILER_LAUNCHER ${CCACHE_PROGRAM})
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
