# What a wheel holds beside the files of python/deepspeed (component `python`, which pyproject.toml installs):
#   deepspeed/_core.*.so           the engine, for Python
#   deepspeed/_build.py            what it was built for
#   deepspeed/bin/                 the programs
#   deepspeed/lib/                 their libraries, and those of the system that a plain machine lacks
#   deepspeed/lib/cmake/, include/ the package of find_package(deepspeed), by cmake/Install.cmake
#   deepspeed/licenses/            of what is built in or taken along
# All find each other, and torch beside the package, relative to where they lie.
set(package_programs app_deepspeed app_ds_accelerate app_ds_accelerate_test app_ds_experiment app_ds_elastic app_ds_node app_ds_ssh app_ds_bench app_ds_io app_ds_schedule app_ds_to_universal app_zero_to_fp32)
add_custom_target(python_package)
add_dependencies(python_package _core ${package_programs})

# A wheel has no symbolic links, and would hold a library as often as it has names.
add_dependencies(python_package ${libraries})
set_target_properties(${libraries} PROPERTIES VERSION ${PROJECT_VERSION_MAJOR}.${PROJECT_VERSION_MINOR})
set_target_properties(_core PROPERTIES INSTALL_RPATH "$ORIGIN/lib;$ORIGIN/../torch/lib")
set_target_properties(${libraries} PROPERTIES INSTALL_RPATH "$ORIGIN;$ORIGIN/../../torch/lib")
if(DEEPSPEED_HAS_CUDA)  # torch's wheels have CUDA's run-time library here
  set_property(TARGET deepspeed_cuda APPEND PROPERTY INSTALL_RPATH "$ORIGIN/../../nvidia/cu${_torch_cuda_major}/lib")
endif()
set_target_properties(${package_programs} PROPERTIES INSTALL_RPATH "$ORIGIN/../lib;$ORIGIN/../../torch/lib")
install(FILES ${PROJECT_BINARY_DIR}/python/deepspeed/_build.py DESTINATION deepspeed COMPONENT python)
install(TARGETS _core LIBRARY DESTINATION deepspeed COMPONENT python)
install(TARGETS ${package_programs} RUNTIME DESTINATION deepspeed/bin COMPONENT python)
if(DEEPSPEED_SOURCES)
  add_dependencies(python_package example_gpt2)
  set_target_properties(example_gpt2 PROPERTIES INSTALL_RPATH "$ORIGIN/../../lib;$ORIGIN/../../../torch/lib")
endif()
