# The headers that programs include, and what those reach: these alone are installed.
set(DEEPSPEED_PUBLIC_HEADERS
  deepspeed/deepspeed.h
  deepspeed/accelerate.h
  deepspeed/base/version.h
  deepspeed/checkpointing.h
  deepspeed/ops.h
  deepspeed/pipe.h
  deepspeed/trial.h
  deepspeed/checkpoint/convert/universal.h
  deepspeed/checkpoint/convert/zero_to_fp32.h
  deepspeed/comm/adopt.h
  deepspeed/comm/log/comms_logger.h
  deepspeed/config/help.h
  deepspeed/config/training_config.h
  deepspeed/kernels/adam.h
  deepspeed/kernels/update.h
  deepspeed/optim/slices/optimizer_with_states.h)

# Sets `result` to the headers and all headers of this project that they include.
function(deepspeed_reached_headers result)
  set(waiting ${ARGN})
  set(reached "")
  while(waiting)
    list(POP_FRONT waiting header)
    if(header IN_LIST reached)
      continue()
    endif()
    list(APPEND reached ${header})
    file(STRINGS ${PROJECT_SOURCE_DIR}/${header} includes REGEX "^#include \"deepspeed/")
    list(TRANSFORM includes REPLACE "^#include \"([^\"]+)\".*" "\\1")
    list(APPEND waiting ${includes})
  endwhile()
  set(${result} ${reached} PARENT_SCOPE)
endfunction()
