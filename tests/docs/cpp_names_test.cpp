// The tables of docs/from_python.md say how DeepSpeed's calls are spelled in C++: such a name occurs in a
// header.
#include <filesystem>
#include <regex>
#include <set>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "tests/docs/sources.h"
#include "tests/pages/markdown.h"

namespace {

using namespace deepspeed::testing;

using Names = std::set<std::string>;

void add_names(const std::string& text, Names& names) {
  static const std::regex name("[A-Za-z_]\\w+");
  for (std::sregex_iterator it(text.begin(), text.end(), name), end; it != end; ++it) names.insert(it->str());
}

Names names_of_headers() {
  Names names;
  for (const auto& path : files_below("deepspeed", {".h"})) add_names(read_text(path), names);
  return names;
}

// The names in the code of a table's second column, without those of texts and of torch, and dist, which
// stands for deepspeed::comm.
Names names_of_row(const std::string& row) {
  static const std::regex second_cell(R"(^\|(?:[^|\\]|\\.)*\|((?:[^|\\]|\\.)*)\|)");
  static const std::regex code("`([^`]+)`");
  static const std::regex foreign(R"re("[^"]*"|/\*.*?\*/|\b(?:torch|std)::[\w:]+|\bdist::)re");
  Names names;
  std::smatch cell;
  if (!std::regex_search(row, cell, second_cell)) return names;
  const std::string text = cell[1];
  for (std::sregex_iterator it(text.begin(), text.end(), code), end; it != end; ++it) {
    add_names(std::regex_replace((*it)[1].str(), foreign, " "), names);
  }
  return names;
}

TEST(CppNames, OccurInHeaders) {
  const Names known = names_of_headers();
  size_t num_names = 0;
  for (const auto& [line, text] : read_markdown(kRoot, "docs/from_python.md").prose) {
    for (const std::string& name : names_of_row(text)) {
      ++num_names;
      EXPECT_TRUE(known.contains(name)) << "docs/from_python.md:" << line << ": " << name;
    }
  }
  EXPECT_GT(num_names, 100);
}

TEST(CppNames, AreThoseOfTheSecondColumn) {
  EXPECT_EQ(names_of_row("| `engine.a()` | `engine->b(\"text\", /*c=*/torch::kFloat)` |"), (Names{"engine"}));
}

}  // namespace
