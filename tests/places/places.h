// Where this checkout and its build lie. Only places.cpp is compiled with their paths, so that the compiler
// cache serves the tests of other checkouts.
#pragma once

#include <filesystem>

namespace deepspeed::testing {

/// The root of the project's sources.
std::filesystem::path source_folder();
/// The folder that CMake builds in.
std::filesystem::path build_folder();

}  // namespace deepspeed::testing
