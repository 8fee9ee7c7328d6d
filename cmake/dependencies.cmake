# What the build needs beside a compiler, Python and torch, and where it is taken from.
#
# A dependency of at least the lowest version that the tests pass with is used where it is found. Another one is fetched in
# the version below, whose hash is checked, and compiled into the library. Everything that is missing is said at once,
# before anything is compiled.
#
# Input:  DEEPSPEED_DEPS_DIR (of CMake, else of the environment): a folder of the archives, for a machine without a network.
#         DEEPSPEED_FETCH: auto; ON, which looks for nothing and fetches; or OFF, which fetches nothing.
# Output: nlohmann_json::nlohmann_json, CLI11::CLI11, HWY_LIBRARY and YAML_LIBRARY (targets), DEEPSPEED_JSON_INCLUDE,
#         DEEPSPEED_LICENSES.
#
# `cmake -DDEEPSPEED_DEPS_DIR=FOLDER -P cmake/dependencies.cmake` fills such a folder (scripts/fetch_deps.sh).

set(_archives nlohmann_json CLI11 highway yaml-cpp)
set(_nlohmann_json_lowest 3.11.2)
set(_nlohmann_json_version 3.11.3)
set(_nlohmann_json_url https://github.com/nlohmann/json/archive/refs/tags/v3.11.3.tar.gz)
set(_nlohmann_json_hash 0d8ef5af7f9794e3263480193c491549b2ba6cc74bb018906202ada498a79406)
set(_nlohmann_json_packages "apt: nlohmann-json3-dev | dnf: json-devel | conda: nlohmann_json")
set(_CLI11_lowest 2.1.2)
set(_CLI11_version 2.4.1)
set(_CLI11_url https://github.com/CLIUtils/CLI11/archive/refs/tags/v2.4.1.tar.gz)
set(_CLI11_hash 73b7ec52261ce8fe980a29df6b4ceb66243bb0b779451dbd3d014cfec9fdbb58)
set(_CLI11_packages "apt: libcli11-dev | dnf: cli11-devel | conda: cli11")
set(_highway_lowest 1.0.3)
set(_highway_version 1.2.0)
set(_highway_url https://github.com/google/highway/archive/refs/tags/1.2.0.tar.gz)
set(_highway_hash 7e0be78b8318e8bdbf6fa545d2ecb4c90f947df03f7aadc42c1967f019e63343)
set(_highway_packages "apt: libhwy-dev | dnf: highway-devel | conda: libhwy")
set(_yaml-cpp_lowest 0.7.0)
set(_yaml-cpp_version 0.8.0)
set(_yaml-cpp_url https://github.com/jbeder/yaml-cpp/archive/refs/tags/0.8.0.tar.gz)
set(_yaml-cpp_hash fbe74bbdcee21d656715688706da3c8becfd946d92cd44705cc6098bb23b3a16)
set(_yaml-cpp_packages "apt: libyaml-cpp-dev | dnf: yaml-cpp-devel | conda: yaml-cpp")

# Puts the archive of a dependency into `folder`; `problem` is empty, or says why it is not there.
function(deepspeed_download name folder problem)
  set(file ${folder}/${name}-${_${name}_version}.tar.gz)
  set(${problem} "" PARENT_SCOPE)
  if(EXISTS ${file})
    file(SHA256 ${file} hash)
    if(hash STREQUAL _${name}_hash)
      return()
    endif()
  endif()
  file(MAKE_DIRECTORY ${folder})
  string(RANDOM LENGTH 8 suffix)
  set(partial ${file}.${suffix})
  # CMake waits for a host that does not answer as long as for the whole file. One that does has sent something by then.
  foreach(limit 7 300)
    file(DOWNLOAD ${_${name}_url} ${partial} STATUS status INACTIVITY_TIMEOUT 7 TIMEOUT ${limit})
    list(GET status 0 code)
    set(size 0)
    if(EXISTS ${partial})
      file(SIZE ${partial} size)
    endif()
    if(code EQUAL 0 OR size EQUAL 0)
      break()
    endif()
  endforeach()
  if(code EQUAL 0)
    file(SHA256 ${partial} hash)
    if(hash STREQUAL _${name}_hash)
      file(RENAME ${partial} ${file})
      return()
    endif()
    set(${problem} "${_${name}_url} gave a file of SHA-256 ${hash}, expected ${_${name}_hash}" PARENT_SCOPE)
  else()
    list(GET status 1 text)
    string(REPLACE "\"" "" text "${text}")
    set(${problem} "${_${name}_url} cannot be fetched (${text})" PARENT_SCOPE)
  endif()
  file(REMOVE ${partial})
endfunction()

if(CMAKE_SCRIPT_MODE_FILE)
  if(NOT DEEPSPEED_DEPS_DIR)
    message(FATAL_ERROR "usage: cmake -DDEEPSPEED_DEPS_DIR=FOLDER -P cmake/dependencies.cmake")
  endif()
  get_filename_component(DEEPSPEED_DEPS_DIR ${DEEPSPEED_DEPS_DIR} ABSOLUTE)
  foreach(name ${_archives})
    deepspeed_download(${name} ${DEEPSPEED_DEPS_DIR} problem)
    if(problem)
      message(FATAL_ERROR " ${problem}")
    endif()
    message(STATUS "${DEEPSPEED_DEPS_DIR}/${name}-${_${name}_version}.tar.gz")
  endforeach()
  return()
endif()

set(DEEPSPEED_FETCH auto CACHE STRING "Fetch dependencies: auto, which is what is not found; ON, which is all; OFF")
if(NOT DEEPSPEED_DEPS_DIR)
  set(DEEPSPEED_DEPS_DIR "$ENV{DEEPSPEED_DEPS_DIR}")
endif()

# deepspeed_problem(text): one line of what is missing.
set_property(GLOBAL PROPERTY DEEPSPEED_PROBLEMS "")
function(deepspeed_problem text)
  string(REPLACE ";" "," text "${text}")
  set_property(GLOBAL APPEND PROPERTY DEEPSPEED_PROBLEMS "${text}")
endfunction()

# The compiler, its processor and the C library.
set(_compiler ${CMAKE_CXX_COMPILER} ${CMAKE_CXX_COMPILER_ARG1})
foreach(_option target=${CMAKE_CXX_COMPILER_TARGET} sysroot=${CMAKE_SYSROOT})
  if(_option MATCHES "=.")
    list(APPEND _compiler --${_option})
  endif()
endforeach()
execute_process(COMMAND sh ${PROJECT_SOURCE_DIR}/scripts/check_machine.sh ${_compiler} OUTPUT_VARIABLE _lines)
string(REGEX MATCHALL "[^\n]+" _lines "${_lines}")
foreach(_line ${_lines})
  deepspeed_problem("${_line}")
endforeach()

# torch and Python's headers.
include(LibTorch)
if(DEEPSPEED_TORCH_VERSION AND
   (DEEPSPEED_TORCH_VERSION VERSION_LESS 2.11 OR DEEPSPEED_TORCH_VERSION VERSION_GREATER_EQUAL 2.16))
  deepspeed_problem("torch ${DEEPSPEED_TORCH_VERSION} is at ${DEEPSPEED_TORCH_DIR}, and 2.11 to 2.15 is needed (python3 -m pip install 'torch==2.11.*')")
endif()
if(DEEPSPEED_PYTHON)
  find_package(Python 3.10 QUIET COMPONENTS Interpreter)
  if(NOT Python_FOUND)
    deepspeed_problem("Python 3.10 or later is needed, found '${Python_EXECUTABLE}' ${Python_VERSION} (apt: python3 | dnf: python3.11 | conda: python)")
  else()
    find_package(Python 3.10 QUIET COMPONENTS Interpreter Development.Module)
    if(NOT Python_FOUND)
      execute_process(COMMAND sh ${PROJECT_SOURCE_DIR}/scripts/check_machine.sh --python ${Python_EXECUTABLE} ${_compiler}
                      OUTPUT_VARIABLE _lines)
      string(REGEX MATCH "Python's headers [^\n]*" _line "${_lines}")
      if(NOT _line)
        set(_line "CMake found no headers of Python ${Python_VERSION}: name its program by -DPython_EXECUTABLE")
      endif()
      deepspeed_problem("${_line}")
    endif()
  endif()
endif()
find_package(Threads REQUIRED)

# What is there.
set(_missing "")
if(DEEPSPEED_FETCH STREQUAL ON)
  set(_missing ${_archives})
else()
  foreach(_name nlohmann_json CLI11 yaml-cpp)
    find_package(${_name} ${_${_name}_lowest} QUIET)
    if(NOT ${_name}_FOUND)
      list(APPEND _missing ${_name})
      set(_${_name}_found ${${_name}_CONSIDERED_VERSIONS})
    endif()
  endforeach()
  find_library(HWY_LIBRARY hwy)
  find_path(HWY_INCLUDE hwy/highway.h)
  if(HWY_LIBRARY AND HWY_INCLUDE)
    set(_parts "")
    foreach(_part MAJOR MINOR PATCH)
      foreach(_header hwy/base.h hwy/highway.h)
        file(STRINGS ${HWY_INCLUDE}/${_header} _line LIMIT_COUNT 1 REGEX "^#define HWY_${_part} [0-9]+")
        if(_line)
          string(REGEX MATCH "[0-9]+$" _number "${_line}")
          list(APPEND _parts ${_number})
          break()
        endif()
      endforeach()
    endforeach()
    string(REPLACE ";" "." _highway_found "${_parts}")
  endif()
  if(NOT _highway_found OR _highway_found VERSION_LESS _highway_lowest)
    list(APPEND _missing highway)
  endif()
endif()

# What is not there: in the folder, else from the network. The first that cannot be fetched says it for all.
set(_folder ${PROJECT_BINARY_DIR}/_deps/archives)
if(DEEPSPEED_DEPS_DIR)
  get_filename_component(_folder "${DEEPSPEED_DEPS_DIR}" ABSOLUTE)
endif()
set(_no_network "")
foreach(_name ${_missing})
  set(_file ${_folder}/${_name}-${_${_name}_version}.tar.gz)
  set(_text "${_name} ${_${_name}_lowest} or later was not found")
  if(_${_name}_found)
    string(APPEND _text " (${_${_name}_found} is too old)")
  endif()
  set(_why "")
  if(DEEPSPEED_DEPS_DIR AND NOT EXISTS ${_file})
    set(_why "and DEEPSPEED_DEPS_DIR has no ${_file}: `scripts/fetch_deps.sh FOLDER` fills such a folder")
  elseif(DEEPSPEED_DEPS_DIR)
    file(SHA256 ${_file} _hash)
    if(NOT _hash STREQUAL _${_name}_hash)
      set(_why "and ${_file} has the SHA-256 ${_hash}, expected ${_${_name}_hash}: fetch it again by scripts/fetch_deps.sh")
    endif()
  elseif(DEEPSPEED_FETCH STREQUAL OFF)
    set(_why "and DEEPSPEED_FETCH is OFF")
  elseif(_no_network)
    set(_why "nor fetched")
  else()
    message(STATUS "${_text}: fetching ${_${_name}_version}")
    deepspeed_download(${_name} ${_folder} _why)
    set(_no_network "${_why}")
    if(_why)
      set(_why "and ${_why}")
    endif()
  endif()
  if(_why)
    deepspeed_problem("${_text}, ${_why} (${_${_name}_packages})")
  endif()
endforeach()

if(DEEPSPEED_TESTS)
  find_package(GTest QUIET)
  if(NOT GTest_FOUND AND DEEPSPEED_TESTS STREQUAL auto)
    message(STATUS "the tests are left out: GoogleTest was not found (apt: libgtest-dev libgmock-dev)")
    set(DEEPSPEED_TESTS OFF)
  elseif(NOT GTest_FOUND)
    deepspeed_problem("GoogleTest was not found: -DDEEPSPEED_TESTS=OFF builds without the tests (apt: libgtest-dev libgmock-dev | dnf: gtest-devel gmock-devel | conda: gtest gmock)")
  endif()
endif()

get_property(_problems GLOBAL PROPERTY DEEPSPEED_PROBLEMS)
if(_problems)
  list(JOIN _problems "\n  - " _lines)
  set(_hint "")
  if(_no_network)
    set(_hint "\n Without a network: `scripts/fetch_deps.sh FOLDER` on a machine that has one, and DEEPSPEED_DEPS_DIR=FOLDER here.")
  endif()
  message(FATAL_ERROR " deepspeed cannot be built here:\n  - ${_lines}${_hint}")
endif()

# The targets.
set(DEEPSPEED_LICENSES "")
if(_missing)
  include(FetchContent)
  set(FETCHCONTENT_QUIET ON)
  foreach(_name ${_missing})
    string(TOLOWER ${_name} _lower)
    set(_options "")
    if(CMAKE_VERSION VERSION_GREATER_EQUAL 3.24)
      set(_options DOWNLOAD_EXTRACT_TIMESTAMP OFF)
    endif()
    # Its own CMake files are not used: they would install it, and build what is not needed.
    FetchContent_Declare(${_name} URL ${_folder}/${_name}-${_${_name}_version}.tar.gz URL_HASH SHA256=${_${_name}_hash}
      SOURCE_SUBDIR none ${_options})
    FetchContent_MakeAvailable(${_name})
    set(_${_name}_source ${${_lower}_SOURCE_DIR})
    message(STATUS "${_name} ${_${_name}_version} is built in")
  endforeach()
  foreach(_name nlohmann_json CLI11)
    if(_name IN_LIST _missing)
      add_library(${_name}::${_name} INTERFACE IMPORTED GLOBAL)
      target_include_directories(${_name}::${_name} SYSTEM INTERFACE ${_${_name}_source}/include)
      set(${_name}_VERSION ${_${_name}_version})
    endif()
  endforeach()
endif()
get_target_property(DEEPSPEED_JSON_INCLUDE nlohmann_json::nlohmann_json INTERFACE_INCLUDE_DIRECTORIES)
list(GET DEEPSPEED_JSON_INCLUDE 0 DEEPSPEED_JSON_INCLUDE)  # Debian's target names its folder twice

if(highway IN_LIST _missing)
  file(GLOB _sources ${_highway_source}/hwy/*.cc)
  list(FILTER _sources INCLUDE REGEX "/(abort|aligned_allocator|per_target|print|targets)[.]cc$")
  add_library(deepspeed_highway STATIC ${_sources})
  target_include_directories(deepspeed_highway SYSTEM PUBLIC ${_highway_source})
  target_compile_definitions(deepspeed_highway PUBLIC HWY_STATIC_DEFINE)
  target_compile_features(deepspeed_highway PUBLIC cxx_std_17)
  target_compile_options(deepspeed_highway PRIVATE -w)
  set_target_properties(deepspeed_highway PROPERTIES POSITION_INDEPENDENT_CODE ON CXX_VISIBILITY_PRESET hidden
    VISIBILITY_INLINES_HIDDEN ON)
  list(APPEND DEEPSPEED_LICENSES ${_highway_source}/LICENSE-BSD3)
else()
  add_library(deepspeed_highway INTERFACE IMPORTED GLOBAL)
  target_include_directories(deepspeed_highway SYSTEM INTERFACE ${HWY_INCLUDE})
  target_link_libraries(deepspeed_highway INTERFACE ${HWY_LIBRARY})
endif()
set(HWY_LIBRARY deepspeed_highway)

if(yaml-cpp IN_LIST _missing)
  file(GLOB _sources ${_yaml-cpp_source}/src/*.cpp)
  add_library(deepspeed_yaml STATIC ${_sources})
  target_include_directories(deepspeed_yaml SYSTEM PUBLIC ${_yaml-cpp_source}/include)
  target_compile_definitions(deepspeed_yaml PUBLIC YAML_CPP_STATIC_DEFINE)
  target_compile_features(deepspeed_yaml PUBLIC cxx_std_17)
  target_compile_options(deepspeed_yaml PRIVATE -w -include cstdint)
  set_target_properties(deepspeed_yaml PROPERTIES POSITION_INDEPENDENT_CODE ON CXX_VISIBILITY_PRESET hidden
    VISIBILITY_INLINES_HIDDEN ON)
  list(APPEND DEEPSPEED_LICENSES ${_yaml-cpp_source}/LICENSE)
else()
  add_library(deepspeed_yaml INTERFACE IMPORTED GLOBAL)
  if(NOT TARGET yaml-cpp::yaml-cpp)  # before 0.8
    add_library(yaml-cpp::yaml-cpp ALIAS yaml-cpp)
  endif()
  target_link_libraries(deepspeed_yaml INTERFACE yaml-cpp::yaml-cpp)
endif()
set(YAML_LIBRARY deepspeed_yaml)

# torch's wheel leaves out Gloo's headers, which its own include. They need the names of a few classes alone, so where Gloo
# is not installed these stand for them. No object of Gloo is made here; Context's two functions are libtorch_cpu's.
if(NOT DEEPSPEED_FETCH STREQUAL ON)
  find_path(DEEPSPEED_GLOO_INCLUDE gloo/rendezvous/store.h HINTS ${DEEPSPEED_TORCH_DIR}/include)
endif()
if(NOT DEEPSPEED_GLOO_INCLUDE)
  set(_gloo ${PROJECT_BINARY_DIR}/gloo_declarations)
  foreach(_header algorithm common/error)
    file(CONFIGURE OUTPUT ${_gloo}/gloo/${_header}.h CONTENT "#pragma once\n" @ONLY)
  endforeach()
  file(CONFIGURE OUTPUT ${_gloo}/gloo/context.h @ONLY CONTENT [[
#pragma once
#include <chrono>
namespace gloo {
class Context {
 public:
  void setTimeout(std::chrono::milliseconds);
  void closeConnections();
};
}  // namespace gloo
]])
  file(CONFIGURE OUTPUT ${_gloo}/gloo/transport/device.h @ONLY CONTENT [[
#pragma once
namespace gloo::transport {
class Device;
class UnboundBuffer {
 public:
  virtual ~UnboundBuffer() = 0;
};
}  // namespace gloo::transport
]])
  file(CONFIGURE OUTPUT ${_gloo}/gloo/rendezvous/store.h @ONLY CONTENT [[
#pragma once
#include <chrono>
#include <string>
#include <vector>
namespace gloo::rendezvous {
class Store {
 public:
  virtual ~Store();
  virtual void set(const std::string&, const std::vector<char>&) = 0;
  virtual std::vector<char> get(const std::string&) = 0;
  virtual void wait(const std::vector<std::string>&) = 0;
  virtual void wait(const std::vector<std::string>&, const std::chrono::milliseconds&) = 0;
};
}  // namespace gloo::rendezvous
]])
  set(DEEPSPEED_GLOO_DECLARATIONS ${_gloo})
endif()
