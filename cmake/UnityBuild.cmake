# Files of a target compile several at a time: most of a file's time goes into the headers of torch, json and GoogleTest.
# A name in an anonymous namespace must so be the only one of its folder.
function(deepspeed_unity target)
  if(NOT DEEPSPEED_UNITY)
    return()
  endif()
  set_target_properties(${target} PROPERTIES UNITY_BUILD ON UNITY_BUILD_MODE BATCH UNITY_BUILD_BATCH_SIZE 12)
  # GCC takes the joined files for headers.
  target_compile_options(${target} PRIVATE $<$<CXX_COMPILER_ID:GNU>:-Wno-subobject-linkage>)
endfunction()
