// What a call complains of: its text, and an expectation of the error's class and of parts of the text. It
// needs no torch, so that the tests of base, config and launcher use it too.
#pragma once

#include <cstdlib>
#include <memory>
#include <string>
#include <typeinfo>
#include <vector>

#include <cxxabi.h>
#include <gtest/gtest.h>

namespace deepspeed::testing {

/// The text of the `Error` that `body()` throws, "no error" where it throws none; other errors pass.
template <class Error, class Body>
std::string error_of(const Body& body) {
  try {
    body();
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

/// The name of a class as the sources spell it.
inline std::string class_name(const std::type_info& type) {
  const std::unique_ptr<char, decltype(&std::free)> name(
      abi::__cxa_demangle(type.name(), nullptr, nullptr, nullptr), &std::free);
  return name == nullptr ? type.name() : name.get();
}

/// Whether `body()` throws an `Error`, none of a derived class, whose text holds all `parts`. No part is a
/// failure too: an error of this project says where, what and the way out, so a test names some of it.
template <class Error, class Body>
::testing::AssertionResult throws_error(const Body& body, const std::vector<std::string>& parts) {
  std::string text;
  try {
    body();
    return ::testing::AssertionFailure() << "it throws nothing, expected " << class_name(typeid(Error));
  } catch (const std::exception& error) {
    text = error.what();
    if (typeid(error) != typeid(Error)) {
      return ::testing::AssertionFailure() << "it throws " << class_name(typeid(error)) << ", expected "
                                           << class_name(typeid(Error)) << ", with the text\n"
                                           << text;
    }
  }
  if (parts.empty()) return ::testing::AssertionFailure() << "the test names no part of the text\n" << text;
  for (const auto& part : parts) {
    if (text.find(part) == std::string::npos) {
      return ::testing::AssertionFailure() << "\"" << part << "\" does not stand in the text\n" << text;
    }
  }
  return ::testing::AssertionSuccess();
}

}  // namespace deepspeed::testing

/// Expects that `expression` throws an error of the class `ErrorType` itself, and that all texts that follow
/// stand in what it says: the argument, key or file that it is about, what it saw, the way out.
#define EXPECT_ERROR(ErrorType, expression, ...) \
  EXPECT_TRUE(::deepspeed::testing::throws_error<ErrorType>([&] { expression; }, {__VA_ARGS__}))
