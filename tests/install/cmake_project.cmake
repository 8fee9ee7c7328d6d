# Unpacks a release archive, looks at where its programs and those of the build folder search for libraries, builds
# examples/cmake_project against it, runs it, asks the programs for their help, and runs the same binary against the
# libraries of a next patch release.
function(run)
  execute_process(COMMAND ${ARGV} RESULT_VARIABLE code)
  if(NOT code EQUAL 0)
    message(FATAL_ERROR "failed (${code}): ${ARGV}")
  endif()
endfunction()
# Runs a command whose output must have TEXT.
function(expect text)
  execute_process(COMMAND ${ARGN} RESULT_VARIABLE code OUTPUT_VARIABLE output)
  string(FIND "${output}" "${text}" found)
  if(NOT code EQUAL 0 OR found EQUAL -1)
    message(FATAL_ERROR "failed (${code}), or no '${text}' in the output of ${ARGN}:\n${output}")
  endif()
endfunction()

# Another checkout's objects serve this one, as in scripts/build.sh.
set(ENV{CCACHE_BASEDIR} ${SOURCE})
set(ENV{CCACHE_NOHASHDIR} 1)

file(REMOVE_RECURSE ${WORK})
run(${CPACK} --config ${BUILD}/CPackConfig.cmake -G TGZ -B ${WORK}/archive)
file(GLOB archive ${WORK}/archive/deepspeed-cpp-${VERSION}-torch-*.tar.gz)
if(NOT archive)
  message(FATAL_ERROR "no archive that names version ${VERSION} in ${WORK}/archive")
endif()
function(unpack)
  file(REMOVE_RECURSE ${WORK}/prefix)
  file(ARCHIVE_EXTRACT INPUT ${archive} DESTINATION ${WORK})
  file(GLOB unpacked ${WORK}/deepspeed-cpp-*)
  file(RENAME ${unpacked} ${WORK}/prefix)
endfunction()
unpack()
file(GLOB license ${WORK}/prefix/share/doc/*/LICENSE)
if(NOT license)
  message(FATAL_ERROR "no LICENSE in the archive")
endif()

file(GLOB json RELATIVE ${WORK}/prefix/include/deepspeed/json ${WORK}/prefix/include/deepspeed/json/*)
if(NOT json STREQUAL "nlohmann")
  message(FATAL_ERROR "the JSON headers of the archive are not nlohmann/ alone: ${json}")
endif()

# No file is one whose libraries are looked for in the current folder: an empty entry of a run path stands for it.
file(GLOB files ${BUILD}/bin/* ${BUILD}/lib/*.so* ${BUILD}/tests/*_tests ${BUILD}/python/deepspeed/_core.*
     ${WORK}/prefix/bin/* ${WORK}/prefix/lib*/*.so* ${WORK}/prefix/lib/*/*.so*)
foreach(file ${files})
  execute_process(COMMAND readelf --dynamic --wide ${file} OUTPUT_VARIABLE dynamic RESULT_VARIABLE code ERROR_QUIET)
  if(code EQUAL 0 AND dynamic MATCHES "R(UN)?PATH[^[]*[[](|[^]]*::[^]]*|[^]]*:|[:.][^]]*)[]]")
    message(FATAL_ERROR "${file} looks for libraries in the current folder: ${CMAKE_MATCH_0}")
  endif()
endforeach()

# LibTorch lies elsewhere than where the library was built: CMAKE_PREFIX_PATH says where.
file(CREATE_LINK ${TORCH_DIR} ${WORK}/torch SYMBOLIC)
run(${CMAKE_COMMAND} -E env --unset=DEEPSPEED_TORCH_DIR
    ${CMAKE_COMMAND} -S ${SOURCE}/examples/cmake_project -B ${WORK}/build -G Ninja
    "-DCMAKE_PREFIX_PATH=${WORK}/prefix\;${WORK}/torch"
    -DCMAKE_CXX_COMPILER_LAUNCHER=ccache -DCMAKE_BUILD_TYPE=Release -DCMAKE_EXE_LINKER_FLAGS=${LINKER_FLAGS})
file(STRINGS ${WORK}/build/CMakeCache.txt torch_dir REGEX "^DEEPSPEED_TORCH_DIR:")
if(NOT torch_dir STREQUAL "DEEPSPEED_TORCH_DIR:PATH=${WORK}/torch")
  message(FATAL_ERROR "LibTorch was not taken from CMAKE_PREFIX_PATH: ${torch_dir}")
endif()
run(${CMAKE_COMMAND} --build ${WORK}/build)
expect("deepspeed-cpp ${VERSION}: y = " ${WORK}/build/my_training)
run(${WORK}/prefix/bin/deepspeed --num_procs 2 ${WORK}/build/my_training)
expect("deepspeed-cpp ${VERSION}" ${WORK}/prefix/bin/deepspeed --version)
run(${WORK}/prefix/bin/zero_to_fp32 --help)
run(${WORK}/prefix/bin/ds_to_universal --help)

# Each header that programs are told to include compiles from the archive alone.
file(WRITE ${WORK}/headers/headers.cpp "#include <deepspeed/checkpointing.h>\n#include <deepspeed/deepspeed.h>\n#include <deepspeed/ops.h>\n#include <deepspeed/pipe.h>\n")
file(WRITE ${WORK}/headers/CMakeLists.txt
  "cmake_minimum_required(VERSION 3.20)\nproject(headers CXX)\nfind_package(deepspeed REQUIRED)\n"
  "add_library(headers OBJECT headers.cpp)\ntarget_link_libraries(headers PRIVATE deepspeed::deepspeed)\n")
run(${CMAKE_COMMAND} -S ${WORK}/headers -B ${WORK}/headers_build -G Ninja
    "-DCMAKE_PREFIX_PATH=${WORK}/prefix\;${WORK}/torch" -DCMAKE_CXX_COMPILER_LAUNCHER=ccache)
run(${CMAKE_COMMAND} --build ${WORK}/headers_build)

# The next patch takes the place of this one under the same SONAMEs.
string(REGEX REPLACE "[.][0-9]+$" "" series ${VERSION})
foreach(library deepspeed deepspeed_core)
  file(GLOB file ${WORK}/prefix/lib*/lib${library}.so.${VERSION} ${WORK}/prefix/lib/*/lib${library}.so.${VERSION})
  if(NOT file)
    message(FATAL_ERROR "lib${library}.so.${VERSION} is not in the archive")
  endif()
  get_filename_component(folder ${file} DIRECTORY)
  file(REMOVE ${file} ${folder}/lib${library}.so.${series} ${folder}/lib${library}.so)
  file(COPY ${NEXT_PATCH}/lib${library}.so.${NEXT_VERSION} DESTINATION ${folder})
  file(CREATE_LINK lib${library}.so.${NEXT_VERSION} ${folder}/lib${library}.so.${series} SYMBOLIC)
endforeach()
expect("deepspeed-cpp ${NEXT_VERSION}: y = " ${WORK}/build/my_training)
expect("deepspeed-cpp ${NEXT_VERSION}" ${WORK}/prefix/bin/deepspeed --version)

# The tutorial's test uses the archive as it is.
unpack()
