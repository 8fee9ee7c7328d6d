# Files of a target compile several at a time: most of a file's time goes into the headers of torch, json and GoogleTest.
# A name in an anonymous namespace must so be the only one of its layer. Files of one layer (a first folder) go together,
# so that a new file changes what is compiled in its own layer alone. The joined files name the others from the project's
# root, so that the compiler cache serves checkouts in other places; CMake's own would name whole paths.
set(DEEPSPEED_UNITY_FILES 36)  # at most, of one compilation

# deepspeed_unity(target [LARGE_HEADERS files...] [ALONE files...]): large headers, whatever their layer, go together; ALONE
# compile as they are.
function(deepspeed_unity target)
  if(NOT DEEPSPEED_UNITY)
    return()
  endif()
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "" "LARGE_HEADERS;ALONE")
  get_target_property(sources ${target} SOURCES)
  list(FILTER sources INCLUDE REGEX "[.]cpp$")
  if(arg_ALONE)
    list(REMOVE_ITEM sources ${arg_ALONE})
  endif()
  if(arg_LARGE_HEADERS)
    list(REMOVE_ITEM sources ${arg_LARGE_HEADERS})
    deepspeed_join(${target} large_headers ${arg_LARGE_HEADERS})
  endif()
  set(layers "")
  foreach(source ${sources})
    cmake_path(ABSOLUTE_PATH source NORMALIZE OUTPUT_VARIABLE path)
    cmake_path(RELATIVE_PATH path BASE_DIRECTORY ${CMAKE_CURRENT_SOURCE_DIR})
    string(REGEX REPLACE "/.*" "" layer ${path})
    list(APPEND layers ${layer})
    list(APPEND sources_of_${layer} ${source})
  endforeach()
  list(REMOVE_DUPLICATES layers)
  foreach(layer ${layers})
    list(LENGTH sources_of_${layer} count)
    math(EXPR groups "(${count} + ${DEEPSPEED_UNITY_FILES} - 1) / ${DEEPSPEED_UNITY_FILES}")
    math(EXPR last "${groups} - 1")
    foreach(group RANGE ${last})
      math(EXPR begin "${group} * ${count} / ${groups}")
      math(EXPR length "(${group} + 1) * ${count} / ${groups} - ${begin}")
      list(SUBLIST sources_of_${layer} ${begin} ${length} files)
      deepspeed_join(${target} ${layer}_${group} ${files})
    endforeach()
  endforeach()
  # GCC takes the joined files for headers.
  target_compile_options(${target} PRIVATE $<$<CXX_COMPILER_ID:GNU>:-Wno-subobject-linkage>)
endfunction()

# deepspeed_join(target name files...): one source of the target, that includes the files, stands for them.
function(deepspeed_join target name)
  set(text "// Written by CMake.\n")
  foreach(source ${ARGN})
    cmake_path(ABSOLUTE_PATH source NORMALIZE OUTPUT_VARIABLE path)
    cmake_path(RELATIVE_PATH path BASE_DIRECTORY ${PROJECT_SOURCE_DIR})
    string(APPEND text "#include \"${path}\"\n")
  endforeach()
  set(joined ${CMAKE_CURRENT_BINARY_DIR}/${target}.joined/${name}.cpp)
  file(CONFIGURE OUTPUT ${joined} CONTENT "${text}" @ONLY)
  # Of this target alone: another of the folder may compile one of the files by itself.
  get_target_property(sources ${target} SOURCES)
  list(REMOVE_ITEM sources ${ARGN})
  set_property(TARGET ${target} PROPERTY SOURCES ${sources} ${joined})
  target_include_directories(${target} PRIVATE ${PROJECT_SOURCE_DIR})
endfunction()
