// The README's list of what does not exist yet, against the config's tables, the headers and the flags that
// are refused.
#include <algorithm>
#include <filesystem>
#include <fstream>
#include <regex>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "deepspeed/config/help.h"

#include "tests/places/places.h"

namespace {

namespace fs = std::filesystem;
const fs::path kSourceRoot = deepspeed::testing::source_folder();

std::string text_of(const fs::path& file) {
  std::ifstream in(kSourceRoot / file);
  std::ostringstream text;
  text << in.rdbuf();
  return text.str();
}

/// The first group of all matches.
std::vector<std::string> all_matches(const std::string& text, const std::regex& pattern) {
  std::vector<std::string> found;
  for (std::sregex_iterator match(text.begin(), text.end(), pattern), end; match != end; ++match)
    found.push_back((*match)[1]);
  return found;
}

/// What stands in backquotes in that part of the README.
std::set<std::string> listed() {
  const std::string readme = text_of("README.md");
  const size_t begin = readme.find("## What does not exist yet\n");
  const size_t end = std::min(readme.find("\n## ", begin + 1), readme.find("Apex's", begin));
  EXPECT_LT(begin, end);
  const auto names = all_matches(readme.substr(begin, end - begin), std::regex("`([^`\n]+)`"));
  return {names.begin(), names.end()};
}

/// Whether a name of the list, a path or its end, stands for the key or for a section that holds it.
bool stands_for(const std::string& name, const std::string& path) {
  return path == name || path.starts_with(name + ".") || path.ends_with("." + name) ||
         path.find("." + name + ".") != std::string::npos;
}

/// The text of all headers.
std::string headers() {
  std::string text;
  for (const auto& entry : fs::recursive_directory_iterator(kSourceRoot / "deepspeed")) {
    if (entry.path().extension() == ".h") text += text_of(entry.path());
  }
  return text;
}

std::set<std::string> refused_flags() {
  const auto flags =
      all_matches(text_of("deepspeed/launcher/args/args.cpp"), std::regex(R"#(\{"(--\w+)", ")#"));
  return {flags.begin(), flags.end()};
}

TEST(MissingFeatures, AreAllListedInTheReadme) {
  const std::set<std::string> names = listed();
  const std::vector<std::string> paths = deepspeed::config::not_supported_yet();
  EXPECT_GT(paths.size(), 40u);
  for (const std::string& path : paths) {
    EXPECT_TRUE(std::any_of(names.begin(), names.end(),
                            [&](const std::string& name) { return stands_for(name, path); }))
        << path << " is not in the README's list";
  }
  const std::set<std::string> flags = refused_flags();
  EXPECT_FALSE(flags.empty());
  for (const std::string& flag : flags)
    EXPECT_TRUE(names.count(flag)) << flag << " is not in the README's list";
}

TEST(MissingFeatures, DoNotExistIfTheReadmeListsThem) {
  const std::vector<std::string> missing = deepspeed::config::not_supported_yet();
  const std::string declared = headers();
  for (const std::string& name : listed()) {
    const auto is_of_name = [&](const std::string& path) { return stands_for(name, path); };
    const bool is_missing_key = std::any_of(missing.begin(), missing.end(), is_of_name);
    if (is_missing_key) continue;
    for (const std::string& line : deepspeed::config::option_list()) {
      EXPECT_FALSE(is_of_name(line.substr(0, line.find(": ")))) << name << " exists: " << line;
    }
    if (name.ends_with("()") && name != "compile()" && name != "initialize()") {
      const std::string call = " " + name.substr(0, name.size() - 1);
      EXPECT_EQ(declared.find(call), std::string::npos) << name << " is declared";
    }
  }
}

}  // namespace
