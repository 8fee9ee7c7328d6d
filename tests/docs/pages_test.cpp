// What all pages have in common: each block says how it is tested, links lead somewhere, named files are
// there.
#include <filesystem>
#include <iterator>
#include <regex>
#include <set>
#include <string>

#include <gtest/gtest.h>

#include "tests/docs/sources.h"
#include "tests/pages/markdown.h"

namespace {

using namespace deepspeed::testing;
namespace fs = std::filesystem;

// What is wrong with the language of a block and the comment above it; nothing where they fit.
std::string complaint_of(const CodeBlock& block) {
  static const std::set<std::string> languages = {"cpp", "sh", "json", "cmake", "python", "text"};
  if (!languages.contains(block.language)) return "expected a language: cpp, sh, json, cmake, python or text";
  if (block.language == "cpp" && block.kind.empty())
    return "expected a comment: program, fragment, file or none";
  const bool is_code = block.kind == "program" || block.kind == "fragment";
  if (is_code && block.language != "cpp") return "expected a block of C++ after " + block.kind;
  const bool is_printed = block.kind == "output" || block.kind == "error";
  if (is_printed && block.language != "text") return "expected a block of text after " + block.kind;
  return "";
}

TEST(Pages, EachBlockSaysHowItIsTested) {
  for (const MarkdownPage& page : read_pages(kRoot)) {
    for (const CodeBlock& block : page.blocks) EXPECT_EQ(complaint_of(block), "") << place_of(block);
  }
}

// A fragment of an unknown fixture would not compile; this says where it stands.
TEST(Pages, FragmentsNameFixturesThatExist) {
  const std::string fixtures = read_text(kRoot / "tests/pages/fixtures.h");
  for (const MarkdownPage& page : read_pages(kRoot)) {
    for (const CodeBlock& block : page.blocks) {
      if (block.kind != "fragment") continue;
      const std::regex definition("(class|using) " + block.argument + "\\b");
      EXPECT_TRUE(std::regex_search(fixtures, definition)) << place_of(block) << ": " << block.argument;
    }
  }
}

// Four spaces after an empty line make a block too, which no test would see.
TEST(Pages, HaveNoIndentedBlocks) {
  for (const MarkdownPage& page : read_pages(kRoot)) {
    std::string before = " ";
    for (const auto& [line, text] : page.prose) {
      EXPECT_FALSE(before.empty() && text.starts_with("    ")) << page.path << ":" << line << ": use a fence";
      before = text;
    }
  }
}

TEST(Pages, LinksLeadToFiles) {
  const std::regex link(R"(\]\(([^)#:]+)\))");
  for (const MarkdownPage& page : read_pages(kRoot)) {
    for (const auto& [line, text] : page.prose) {
      for (std::sregex_iterator it(text.begin(), text.end(), link), end; it != end; ++it) {
        const fs::path target = (kRoot / page.path).parent_path() / (*it)[1].str();
        EXPECT_TRUE(fs::exists(target)) << page.path << ":" << line << ": " << target;
      }
    }
  }
}

bool is_there(const MarkdownPage& page, const std::string& file) {
  for (const fs::path& folder :
       {fs::path(), fs::path("deepspeed"), fs::path("docs"), fs::path(page.path).parent_path()}) {
    if (fs::exists(kRoot / folder / file)) return true;
  }
  return false;
}

// Headers, sources and scripts with a folder, and pages: `optim/algorithms/adam.h`, `engine.md`.
TEST(Pages, NamedFilesExist) {
  const std::regex file(R"(`([\w./-]+\.md|[\w.-]+/[\w./-]+\.(?:h|cpp|py|sh|cmake|json))\b)");
  for (const MarkdownPage& page : read_pages(kRoot)) {
    for (const auto& [line, text] : page.prose) {
      for (std::sregex_iterator it(text.begin(), text.end(), file), end; it != end; ++it) {
        EXPECT_TRUE(is_there(page, (*it)[1])) << page.path << ":" << line << ": " << (*it)[1];
      }
    }
  }
}

// What the README says of the number of tests: no more than there are, and not far fewer.
TEST(Pages, TheReadmeCountsTheTests) {
  const std::regex cpp("(^|\n)TEST(_F|_P)?\\("), python("\ndef test_");
  long found = 0;
  for (const auto& entry : fs::recursive_directory_iterator(kRoot / "tests")) {
    const bool is_cpp = entry.path().string().ends_with("_test.cpp");
    if (!is_cpp && entry.path().extension() != ".py") continue;
    const std::string text = read_text(entry.path());
    const std::regex& pattern = is_cpp ? cpp : python;
    found += std::distance(std::sregex_iterator(text.begin(), text.end(), pattern), std::sregex_iterator());
  }
  std::smatch said;
  const std::string readme = read_text(kRoot / "README.md");
  ASSERT_TRUE(std::regex_search(readme, said, std::regex("more than ([0-9]+) tests")));
  EXPECT_LT(std::stol(said[1]), found);
  EXPECT_GT(std::stol(said[1]), found - 300) << "there are " << found;
}

}  // namespace
