// Holds what a program parses that includes deepspeed/deepspeed.h against a golden list.
#include <filesystem>
#include <fstream>
#include <regex>
#include <set>
#include <sstream>
#include <string>

#include <gtest/gtest.h>

#include "tests/places/places.h"

namespace {

namespace fs = std::filesystem;

std::string header_text(const fs::path& path) {
  std::ifstream in(path);
  std::ostringstream text;
  text << in.rdbuf();
  return text.str();
}

/// Adds the headers of this project that the header includes, and those that they include.
void add_reached(const std::string& header, std::set<std::string>& reached) {
  static const std::regex include(R"re(#include "(deepspeed/[^"]+)")re");
  const std::string text = header_text(deepspeed::testing::source_folder() / header);
  EXPECT_FALSE(text.empty()) << header;
  for (std::sregex_iterator it(text.begin(), text.end(), include), end; it != end; ++it) {
    if (reached.insert((*it)[1]).second) add_reached((*it)[1], reached);
  }
}

// A header that gets into the list is one that programs compile and that a release cannot change at will.
TEST(PublicHeaders, AreThoseOfTheGoldenList) {
  std::set<std::string> reached;
  add_reached("deepspeed/deepspeed.h", reached);
  std::string actual;
  for (const std::string& header : reached) actual += header + "\n";
  const fs::path written = deepspeed::testing::build_folder() / "public_headers.txt";
  const std::string golden =
      header_text(deepspeed::testing::source_folder() / "tests/golden/public_headers.txt");
  if (golden != actual) std::ofstream(written) << actual;
  EXPECT_EQ(golden, actual) << "deepspeed.h reaches other headers; if that is meant, copy " << written
                            << " to tests/golden/public_headers.txt";
  EXPECT_LE(reached.size(), 69u) << "what programs do not name goes behind a pointer";
}

}  // namespace
