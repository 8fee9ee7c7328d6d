# cmake --install: public headers, libraries, programs and a package for find_package(deepspeed). A wheel holds them as well, in the
# folder of the Python package (cmake/PythonPackage.cmake); its files are those of the component `python`.
include(CMakePackageConfigHelpers)
set(libraries deepspeed_core deepspeed)
if(SKBUILD)
  set(package_component COMPONENT python)
  set(installed_name NAMELINK_SKIP)  # a wheel has no symbolic links
endif()
install(TARGETS ${libraries} EXPORT deepspeedTargets LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} ${package_component} ${installed_name})
if(DEEPSPEED_HAS_CUDA)  # loaded by the others, not linked
  list(APPEND libraries deepspeed_cuda)
  install(TARGETS deepspeed_cuda LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} ${package_component} NAMELINK_SKIP)
endif()
include(cmake/PublicHeaders.cmake)
deepspeed_reached_headers(installed_headers ${DEEPSPEED_PUBLIC_HEADERS})
foreach(header ${installed_headers})
  get_filename_component(folder ${header} DIRECTORY)
  install(FILES ${PROJECT_SOURCE_DIR}/${header} DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/${folder} ${package_component})
endforeach()
set(package_folder ${CMAKE_INSTALL_LIBDIR}/cmake/deepspeed)
set(installed_torch "${DEEPSPEED_TORCH_DIR}")
if(SKBUILD)  # the torch beside the package
  set(installed_torch "\${PACKAGE_PREFIX_DIR}/torch")
endif()
install(EXPORT deepspeedTargets NAMESPACE deepspeed:: DESTINATION ${package_folder} ${package_component})
configure_package_config_file(cmake/deepspeedConfig.cmake.in ${PROJECT_BINARY_DIR}/deepspeedConfig.cmake
  INSTALL_DESTINATION ${package_folder})
write_basic_package_version_file(${PROJECT_BINARY_DIR}/deepspeedConfigVersion.cmake
  VERSION ${PROJECT_VERSION} COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/deepspeedConfig.cmake ${PROJECT_BINARY_DIR}/deepspeedConfigVersion.cmake
              ${PROJECT_SOURCE_DIR}/cmake/LibTorch.cmake
        DESTINATION ${package_folder} ${package_component})
# Names of functions hold the version of the json: programs compile with the headers that the library was built with.
install(DIRECTORY ${DEEPSPEED_JSON_INCLUDE}/nlohmann DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/deepspeed/json ${package_component})
# What a release says of itself, and the example that demo.sh runs, so that it compiles nothing (python/release_cache.py).
if(DEEPSPEED_SOURCES)
  file(WRITE ${PROJECT_BINARY_DIR}/release.txt
    "sources ${DEEPSPEED_SOURCES}\ntorch ${DEEPSPEED_TORCH_VERSION}\ncuda ${DEEPSPEED_CUDA_ARCHITECTURES}\n")
  install(FILES ${PROJECT_BINARY_DIR}/release.txt DESTINATION ${CMAKE_INSTALL_LIBEXECDIR}/deepspeed ${package_component})
  install(TARGETS example_gpt2 RUNTIME DESTINATION ${CMAKE_INSTALL_LIBEXECDIR}/deepspeed ${package_component})
  set_target_properties(example_gpt2 PROPERTIES INSTALL_RPATH "$ORIGIN/../../lib")
endif()
# Libraries that a plain machine lacks go along.
if(SKBUILD OR DEEPSPEED_SOURCES)
  string(CONFIGURE [[
    file(GLOB libraries "${CMAKE_INSTALL_PREFIX}/@CMAKE_INSTALL_LIBDIR@/libdeepspeed*")
    file(GET_RUNTIME_DEPENDENCIES LIBRARIES ${libraries} RESOLVED_DEPENDENCIES_VAR found
         UNRESOLVED_DEPENDENCIES_VAR not_here PRE_INCLUDE_REGEXES "^lib(hwy|uring|yaml-cpp)[.]" PRE_EXCLUDE_REGEXES ".")
    foreach(library ${found})
      cmake_path(GET library FILENAME name)
      file(REAL_PATH "${library}" target)
      file(COPY_FILE "${target}" "${CMAKE_INSTALL_PREFIX}/@CMAKE_INSTALL_LIBDIR@/${name}")
    endforeach()
  ]] copy_libraries @ONLY)
  install(CODE "${copy_libraries}" ${package_component})
  set(taken_along uring)
  if(NOT highway IN_LIST _missing)
    list(APPEND taken_along hwy)
  endif()
  if(NOT yaml-cpp IN_LIST _missing)
    list(APPEND taken_along yaml-cpp)
  endif()
  foreach(name ${taken_along})
    find_file(DEEPSPEED_LICENSE_${name} copyright PATHS /usr/share/doc/lib${name}-dev NO_DEFAULT_PATH)
    if(DEEPSPEED_LICENSE_${name})
      file(COPY_FILE ${DEEPSPEED_LICENSE_${name}} ${PROJECT_BINARY_DIR}/LICENSE-${name})
      list(APPEND DEEPSPEED_LICENSES ${PROJECT_BINARY_DIR}/LICENSE-${name})
    endif()
  endforeach()
endif()
if(SKBUILD)
  install(FILES ${DEEPSPEED_LICENSES} DESTINATION deepspeed/licenses COMPONENT python)
  return()
endif()

install(FILES ${PROJECT_SOURCE_DIR}/LICENSE ${DEEPSPEED_LICENSES} DESTINATION ${CMAKE_INSTALL_DOCDIR})
# Installed programs and libraries find each other, and torch where it was found at build time (a release's are told where by
# LD_LIBRARY_PATH, or by the program that loads them). They do so in the build
# folder too: the run paths that CMake writes there, to change them on installing, end in empty entries, and the loader
# takes those for the current folder.
set(torch_paths ${DEEPSPEED_TORCH_LIBRARY_DIRS})
if(DEEPSPEED_SOURCES)
  set(torch_paths "")
endif()
foreach(target ${libraries})
  set_target_properties(${target} PROPERTIES BUILD_WITH_INSTALL_RPATH ON INSTALL_RPATH "$ORIGIN;${torch_paths}")
endforeach()
set(library_paths "$ORIGIN/../${CMAKE_INSTALL_LIBDIR};$ORIGIN/../lib")
list(REMOVE_DUPLICATES library_paths)
get_property(app_targets DIRECTORY apps PROPERTY BUILDSYSTEM_TARGETS)
foreach(target ${app_targets})
  set_target_properties(${target} PROPERTIES BUILD_WITH_INSTALL_RPATH ON
    INSTALL_RPATH "${library_paths};${torch_paths}")
endforeach()

# A release archive of the same files: `cpack --config build/<preset>/CPackConfig.cmake` (or `ninja package`).
set(CPACK_GENERATOR TGZ)
set(CPACK_PACKAGE_NAME deepspeed-cpp)
set(CPACK_PACKAGE_FILE_NAME
  deepspeed-cpp-${PROJECT_VERSION}-torch-${DEEPSPEED_TORCH_VERSION}-${CMAKE_SYSTEM_NAME}-${CMAKE_SYSTEM_PROCESSOR})
set(CPACK_RESOURCE_FILE_LICENSE ${PROJECT_SOURCE_DIR}/LICENSE)
include(CPack)
