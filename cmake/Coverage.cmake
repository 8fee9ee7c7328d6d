# Counters of the lines that run, in the two libraries alone: tests and programs compile as in the preset release, and the
# compiler cache has them from there. Without optimisation a line's counter is that line's; the kernels keep the
# optimisation that their files name, since their tests run for long.
target_compile_options(deepspeed_version PRIVATE --coverage -O0)  # a part of deepspeed_core
foreach(library deepspeed_core deepspeed)
  target_compile_options(${library} PRIVATE --coverage -O0)
  # A program's copies of inline functions have no counters; the library calls its own.
  target_link_options(${library} PRIVATE --coverage LINKER:-Bsymbolic-functions)
endforeach()
target_sources(deepspeed_core PRIVATE ${PROJECT_SOURCE_DIR}/cmake/coverage/dump_at_exit.cpp)
