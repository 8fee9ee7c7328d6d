# Configures the project where something is missing, and holds what CMake says: one line for each, before anything is compiled.
# The dependencies come from a folder alone, so nothing is fetched.
function(expect_refusal)
  cmake_parse_arguments(PARSE_ARGV 0 arg "" "" "OPTIONS;TEXTS")
  file(REMOVE_RECURSE ${WORK}/build)
  execute_process(COMMAND ${CMAKE_COMMAND} -E env --unset=CMAKE_PREFIX_PATH --unset=DEEPSPEED_TORCH_DIR
    ${CMAKE_COMMAND} -S ${SOURCE} -B ${WORK}/build -G Ninja -DCMAKE_CXX_COMPILER=${CXX} -DDEEPSPEED_CUDA=OFF -DDEEPSPEED_TESTS=OFF
    -DDEEPSPEED_TORCH_DIR=${TORCH_DIR} -DDEEPSPEED_FETCH=ON -DDEEPSPEED_DEPS_DIR=${WORK}/archives ${arg_OPTIONS}
    RESULT_VARIABLE code OUTPUT_VARIABLE output ERROR_VARIABLE output)
  if(code EQUAL 0)
    message(FATAL_ERROR "configured, expected a refusal: ${arg_OPTIONS}")
  endif()
  foreach(text ${arg_TEXTS})
    if(NOT output MATCHES "\n +- [^\n]*${text}")
      message(FATAL_ERROR "no line '${text}' in:\n${output}")
    endif()
  endforeach()
endfunction()

file(REMOVE_RECURSE ${WORK})
file(WRITE ${WORK}/archives/highway-1.2.0.tar.gz "cut off")
expect_refusal(TEXTS
  "nlohmann_json 3.11.2 or later was not found, and DEEPSPEED_DEPS_DIR has no ${WORK}/archives/nlohmann_json-3.11.3.tar.gz"
  "CLI11 2.1.2 or later was not found.*apt: libcli11-dev . dnf: cli11-devel . conda: cli11"
  "highway-1.2.0.tar.gz has the SHA-256 [0-9a-f]+, expected 7e0be78b")

# What else is missing is said in the same run.
set(torch ${WORK}/torch)
file(WRITE ${torch}/include/torch/headeronly/version.h
  "#define TORCH_VERSION_MAJOR 2\n#define TORCH_VERSION_MINOR 9\n#define TORCH_VERSION_PATCH 1\n")
file(WRITE ${torch}/version.py "cuda = None\n")
expect_refusal(OPTIONS -DDEEPSPEED_TORCH_DIR=${torch} TEXTS
  "torch 2.9.1 is at ${torch}, and 2.11 to 2.15 is needed" "DEEPSPEED_DEPS_DIR has no")
expect_refusal(OPTIONS -DDEEPSPEED_TORCH_DIR=${WORK}/nowhere -DCMAKE_SYSTEM_NAME=Linux -DCMAKE_SYSTEM_PROCESSOR=riscv64 TEXTS
  "LibTorch was not found at '${WORK}/nowhere'" "the processor is riscv64, and x86_64 or aarch64 is needed")

# A compiler that says that it is an older one.
file(WRITE ${WORK}/old-c++ "#!/bin/sh\nexec ${CXX} -U__GNUC__ -D__GNUC__=10 \"$@\"\n")
file(CHMOD ${WORK}/old-c++ PERMISSIONS OWNER_READ OWNER_WRITE OWNER_EXECUTE)
expect_refusal(OPTIONS -DCMAKE_CXX_COMPILER=${WORK}/old-c++ TEXTS "the compiler is GNU 10[^\n]*, and g.. 11 or clang 16 is needed")

# The script for ARM says in one line all that it lacks, before it fetches or compiles anything.
execute_process(COMMAND ${CMAKE_COMMAND} -E env PATH=${WORK}/nowhere GOOGLETEST_SOURCE=${WORK}/nowhere
  /bin/bash ${SOURCE}/scripts/aarch64.sh RESULT_VARIABLE code OUTPUT_VARIABLE output ERROR_VARIABLE output)
if(NOT code EQUAL 1 OR NOT output MATCHES
   "^aarch64: missing: the cross compiler [^\n]*apt: g..-aarch64-linux-gnu[^\n]*apt: qemu-user[^\n]*nowhere [(]apt: googletest[)]\n$")
  message(FATAL_ERROR "scripts/aarch64.sh (${code}) said:\n${output}")
endif()
