# cmake --install: public headers, libraries, programs and a package for find_package(deepspeed).
include(CMakePackageConfigHelpers)
install(TARGETS deepspeed_core deepspeed EXPORT deepspeedTargets
        LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
set(libraries deepspeed_core deepspeed)
if(DEEPSPEED_HAS_CUDA)  # loaded by the others, not linked
  list(APPEND libraries deepspeed_cuda)
  install(TARGETS deepspeed_cuda LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} NAMELINK_SKIP)
endif()
include(cmake/PublicHeaders.cmake)
deepspeed_reached_headers(installed_headers ${DEEPSPEED_PUBLIC_HEADERS})
foreach(header ${installed_headers})
  get_filename_component(folder ${header} DIRECTORY)
  install(FILES ${PROJECT_SOURCE_DIR}/${header} DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/${folder})
endforeach()
install(EXPORT deepspeedTargets NAMESPACE deepspeed:: DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/deepspeed)
configure_package_config_file(cmake/deepspeedConfig.cmake.in ${PROJECT_BINARY_DIR}/deepspeedConfig.cmake
  INSTALL_DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/deepspeed)
write_basic_package_version_file(${PROJECT_BINARY_DIR}/deepspeedConfigVersion.cmake
  VERSION ${PROJECT_VERSION} COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/deepspeedConfig.cmake ${PROJECT_BINARY_DIR}/deepspeedConfigVersion.cmake
              ${PROJECT_SOURCE_DIR}/cmake/LibTorch.cmake
        DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/deepspeed)
install(FILES ${PROJECT_SOURCE_DIR}/LICENSE ${DEEPSPEED_LICENSES} DESTINATION ${CMAKE_INSTALL_DOCDIR})
# Names of functions hold the version of the json: programs compile with the headers that the library was built with.
install(DIRECTORY ${DEEPSPEED_JSON_INCLUDE}/nlohmann DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/deepspeed/json)
# Installed programs and libraries find each other, and torch where it was found at build time. They do so in the build
# folder too: the run paths that CMake writes there, to change them on installing, end in empty entries, and the loader
# takes those for the current folder.
foreach(target ${libraries})
  set_target_properties(${target} PROPERTIES BUILD_WITH_INSTALL_RPATH ON
    INSTALL_RPATH "$ORIGIN;${DEEPSPEED_TORCH_LIBRARY_DIRS}")
endforeach()
set(library_paths "$ORIGIN/../${CMAKE_INSTALL_LIBDIR};$ORIGIN/../lib")
list(REMOVE_DUPLICATES library_paths)
get_property(app_targets DIRECTORY apps PROPERTY BUILDSYSTEM_TARGETS)
foreach(target ${app_targets})
  set_target_properties(${target} PROPERTIES BUILD_WITH_INSTALL_RPATH ON
    INSTALL_RPATH "${library_paths};${DEEPSPEED_TORCH_LIBRARY_DIRS}")
endforeach()

# A release archive of the same files: `cpack --config build/<preset>/CPackConfig.cmake` (or `ninja package`).
set(CPACK_GENERATOR TGZ)
set(CPACK_PACKAGE_NAME deepspeed-cpp)
set(CPACK_PACKAGE_FILE_NAME
  deepspeed-cpp-${PROJECT_VERSION}-torch-${DEEPSPEED_TORCH_VERSION}-${CMAKE_SYSTEM_NAME}-${CMAKE_SYSTEM_PROCESSOR})
set(CPACK_RESOURCE_FILE_LICENSE ${PROJECT_SOURCE_DIR}/LICENSE)
include(CPack)
