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
  "yaml-cpp 0.7.0 or later was not found.*apt: libyaml-cpp-dev . dnf: yaml-cpp-devel . conda: yaml-cpp"
  "CLI11 2.1.2 or later was not found.*apt: libcli11-dev . dnf: cli11-devel . conda: cli11"
  "highway-1.2.0.tar.gz has the SHA-256 [0-9a-f]+, expected 7e0be78b")

# What else is missing is said in the same run.
set(torch ${WORK}/torch)
file(WRITE ${torch}/include/torch/headeronly/version.h
  "#define TORCH_VERSION_MAJOR 2\n#define TORCH_VERSION_MINOR 9\n#define TORCH_VERSION_PATCH 1\n")
file(WRITE ${torch}/version.py "cuda = None\n")
expect_refusal(OPTIONS -DDEEPSPEED_TORCH_DIR=${torch} TEXTS
  "torch 2.9.1 is at ${torch}, and 2.11 to 2.15 is needed" "DEEPSPEED_DEPS_DIR has no")
expect_refusal(OPTIONS -DDEEPSPEED_TORCH_DIR=${WORK}/nowhere TEXTS "LibTorch was not found at '${WORK}/nowhere'")

# program(path lines...): a script.
function(program path)
  list(JOIN ARGN "\n" lines)
  file(WRITE ${path} "#!/bin/sh\n${lines}\n")
  file(CHMOD ${path} PERMISSIONS OWNER_READ OWNER_WRITE OWNER_EXECUTE)
endfunction()
# An older compiler, and one for another processor: they say so of themselves.
program(${WORK}/old-c++ "exec ${CXX} -U__GNUC__ -D__GNUC__=10 \"$@\"")
program(${WORK}/other-c++ "exec ${CXX} -U__x86_64__ -U__aarch64__ \"$@\"")
expect_refusal(OPTIONS -DCMAKE_CXX_COMPILER=${WORK}/old-c++ TEXTS
  "the compiler '${WORK}/old-c..' is [^\n]*.GNU 10., and g.. 11 or clang 16 or later is needed")
# An older C library, and a Python without headers.
program(${WORK}/bin/getconf "echo glibc 2.17")
file(MAKE_DIRECTORY ${WORK}/no_headers)
program(${WORK}/python "echo 3.10 ${WORK}/no_headers")
program(${WORK}/python2 "echo 3.9 ${WORK}/no_headers")
set(machine ${SOURCE}/scripts/check_machine.sh)
function(expect_line text)
  execute_process(COMMAND ${CMAKE_COMMAND} -E env "PATH=${WORK}/bin:$ENV{PATH}" ${ARGN} RESULT_VARIABLE code OUTPUT_VARIABLE output)
  if(code EQUAL 0 OR NOT output MATCHES "${text}")
    message(FATAL_ERROR "ended with ${code}, expected '${text}' of ${ARGN}:\n${output}")
  endif()
endfunction()
expect_line("^the C library is glibc 2.17, and glibc 2.28 or later is needed[^\n]*\n$" ${machine} ${CXX})
expect_line("^Python's headers are missing .no ${WORK}/no_headers/Python.h.: apt: python3-dev[^\n]*\n$"
  env PATH=$ENV{PATH} ${machine} --python ${WORK}/python ${CXX})
expect_line("^Python is 3.9 .${WORK}/python2., and 3.10 or later is needed[^\n]*\n$"
  env PATH=$ENV{PATH} ${machine} --python ${WORK}/python2 ${CXX})
expect_line("^the compiler '${WORK}/other-c..' compiles for neither x86_64 nor aarch64 of 64 bits" ${machine} ${WORK}/other-c++)
expect_line("^the compiler '${WORK}/none' does not run" ${machine} ${WORK}/none)
expect_line("^no C.. compiler was found on PATH, and g.. 11 or clang 16 or later is needed .apt: g.. . dnf: gcc-c..[^\n]*\n$"
  env -u CXX PATH=${WORK}/bin /bin/sh ${machine})

# setup.sh says it before it fetches anything.
function(expect_setup_to_say text)
  execute_process(COMMAND ${CMAKE_COMMAND} -E env DEEPSPEED_CPP_CACHE=${WORK}/cache ${ARGN} ${SOURCE}/scripts/setup.sh
    RESULT_VARIABLE code ERROR_VARIABLE output)
  if(code EQUAL 0 OR NOT output MATCHES "^setup: ${text}[^\n]*\n$" OR EXISTS ${WORK}/cache)
    message(FATAL_ERROR "ended with ${code}, expected 'setup: ${text}':\n${output}")
  endif()
endfunction()
expect_setup_to_say("the compiler '${WORK}/old-c..' is [^\n]*.GNU 10., and g.. 11 or clang 16" CXX=${WORK}/old-c++)
expect_setup_to_say("TORCH_VERSION is 2.9.1, and 2.11.0 to 2.15 is needed" TORCH_VERSION=2.9.1)
expect_setup_to_say("DEEPSPEED_TORCH_DIR=${torch} holds no LibTorch 2.11.0" TORCH_VERSION=2.11.0
  DEEPSPEED_TORCH_DIR=${torch})

# The script for ARM says in one line all that it lacks, before it fetches or compiles anything.
execute_process(COMMAND ${CMAKE_COMMAND} -E env PATH=${WORK}/nowhere GOOGLETEST_SOURCE=${WORK}/nowhere
  /bin/bash ${SOURCE}/scripts/aarch64.sh RESULT_VARIABLE code OUTPUT_VARIABLE output ERROR_VARIABLE output)
if(NOT code EQUAL 1 OR NOT output MATCHES
   "^aarch64: missing: the cross compiler [^\n]*apt: g..-aarch64-linux-gnu[^\n]*apt: qemu-user[^\n]*nowhere [(]apt: googletest[)]\n$")
  message(FATAL_ERROR "scripts/aarch64.sh (${code}) said:\n${output}")
endif()
