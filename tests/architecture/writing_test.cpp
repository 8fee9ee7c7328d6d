// Holds the sources against three rules of CONTRIBUTING.md: one function for one body, an opening comment in
// long files, and comments that stand without their neighbours. A second test of each rule breaks it.
#include <algorithm>
#include <cctype>
#include <filesystem>
#include <map>
#include <regex>
#include <sstream>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/architecture/sources.h"

namespace {

using namespace deepspeed::testing;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

/// Is a text with the same length and lines three times: code without comments and directives, code without
/// literals too, and comments alone. Spaces stand for the rest.
struct Layout {
  std::string code, shape, comments;
};

void blank(std::string& text, size_t begin, size_t end) {
  std::replace_if(
      text.begin() + ptrdiff_t(begin), text.begin() + ptrdiff_t(end), [](char c) { return c != '\n'; }, ' ');
}

size_t end_of_literal(std::string_view text, size_t at) {
  if (text[at] == 'R') {
    const size_t open = text.find('(', at);
    const std::string close = ")" + std::string(text.substr(at + 2, open - at - 2)) + "\"";
    return text.find(close, open) + close.size();
  }
  size_t end = at + 1;
  for (; end < text.size() && text[end] != text[at]; ++end) end += text[end] == '\\' ? 1 : 0;
  return end + 1;
}

Layout layout_of(const std::string& text) {
  Layout layout{text, text, text};
  blank(layout.comments, 0, text.size());
  bool is_line_empty = true;
  for (size_t at = 0, end = 0; at < text.size(); at = end) {
    end = at + 1;
    const std::string_view rest = std::string_view(text).substr(at);
    const bool follows_word = at > 0 && std::isalnum(static_cast<unsigned char>(text[at - 1])) != 0;
    const bool is_comment = rest.starts_with("//") || rest.starts_with("/*");
    if (is_comment || (text[at] == '#' && is_line_empty)) {
      end = rest.starts_with("/*") ? text.find("*/", at) + 2 : text.find('\n', at);
      while (!is_comment && end != std::string::npos && text[end - 1] == '\\') end = text.find('\n', end + 1);
      end = std::min(end, text.size());
      if (is_comment) layout.comments.replace(at, end - at, text, at, end - at);
      blank(layout.code, at, end);
      blank(layout.shape, at, end);
    } else if (text[at] == '"' || (!follows_word && (text[at] == '\'' || rest.starts_with("R\"")))) {
      end = std::min(end_of_literal(text, at), text.size());
      blank(layout.shape, at, end);
    }
    if (text[at] == '\n') is_line_empty = true;
    if (std::isspace(static_cast<unsigned char>(text[at])) == 0) is_line_empty = false;
  }
  return layout;
}

struct Function {
  size_t line = 0;
  std::string body;  // without white space
  ptrdiff_t num_lines = 0;
};

/// Returns the functions with a body outside of other functions.
std::vector<Function> functions_of(const std::string& text) {
  enum class Block { kScope, kFunction, kOther };
  const std::regex scope(R"(\b(namespace|class|struct|union|enum)\b[^()]*$)");
  const std::regex function(R"(\)\s*(const|noexcept|override|final|&|\s)*(->[^(){}]*)?$)");
  const Layout layout = layout_of(text);
  std::vector<Function> found;
  std::vector<std::pair<Block, size_t>> open;
  size_t head = 0;  // where the words before a brace begin
  const auto is_outside = [&] {
    return std::ranges::all_of(open, [](const auto& block) { return block.first == Block::kScope; });
  };
  for (size_t at = 0; at < text.size(); ++at) {
    if (layout.shape[at] == ';' && is_outside()) head = at + 1;
    if (layout.shape[at] == '{') {
      const std::string words = layout.shape.substr(head, is_outside() ? at - head : 0);
      const std::string before = words.substr(0, words.find_last_not_of(" \n") + 1);
      Block block = Block::kOther;
      if (std::regex_search(before, scope)) block = Block::kScope;
      if (std::regex_search(before, function)) block = Block::kFunction;
      open.emplace_back(block, at);
      if (block == Block::kScope) head = at + 1;
    }
    if (layout.shape[at] != '}' || open.empty()) continue;
    const auto [block, begin] = open.back();
    open.pop_back();
    if (is_outside()) head = at + 1;
    if (block != Block::kFunction) continue;
    std::string body;
    ptrdiff_t num_lines = 0;
    std::istringstream lines(layout.code.substr(begin + 1, at - begin - 1));
    for (std::string line; std::getline(lines, line);) {
      std::erase_if(line, [](unsigned char c) { return std::isspace(c) != 0; });
      body += line;
      num_lines += line.empty() ? 0 : 1;
    }
    const auto line = std::count(text.begin(), text.begin() + ptrdiff_t(begin), '\n') + 1;
    found.push_back({size_t(line), body, num_lines});
  }
  return found;
}

/// Names functions of more than a line that another function of their layer repeats.
std::vector<std::string> equal_bodies(const std::vector<Source>& sources) {
  std::map<std::pair<std::string, std::string>, std::string> places;
  std::vector<std::string> found;
  for (const Source& source : sources) {
    for (const Function& function : functions_of(source.text)) {
      if (function.num_lines < 2) continue;
      const std::string place = source.path.string() + ":" + std::to_string(function.line);
      const auto [known, is_new] = places.try_emplace({first_of(source.folder), function.body}, place);
      if (!is_new) found.push_back(known->second + " and " + place);
    }
  }
  return found;
}

/// Names .cpp files of more than 150 lines that do not open with a comment.
std::vector<std::string> long_files_without_opening(const std::vector<Source>& sources) {
  std::vector<std::string> found;
  for (const Source& source : sources) {
    const auto num_lines = std::count(source.text.begin(), source.text.end(), '\n');
    if (source.path.extension() == ".cpp" && num_lines > 150 && !source.text.starts_with("//"))
      found.push_back(source.path.string());
  }
  return found;
}

/// Names comments that begin with words for the line above. Lines below each other are one comment.
std::vector<std::string> comments_that_lean(const std::vector<Source>& sources) {
  const std::regex first(R"(^\s*//+<?\s*(Does so|The same|Of)\b)");
  std::vector<std::string> found;
  for (const Source& source : sources) {
    std::istringstream lines(layout_of(source.text).comments);
    size_t number = 0, column = std::string::npos;
    for (std::string line; std::getline(lines, line);) {
      ++number;
      const size_t former = std::exchange(column, line.find("//"));
      if (column != former && std::regex_search(line, first))
        found.push_back(source.path.string() + ":" + std::to_string(number));
    }
  }
  return found;
}

TEST(Bodies, AreEqualInNoTwoFunctionsOfALayer) {
  EXPECT_THAT(equal_bodies(layered_sources()), IsEmpty()) << "make them one function";
}

TEST(Bodies, AreFoundIfEqual) {
  const std::string sum = R"(namespace deepspeed {
int sum(int a) {
  a += '{';  // adds
  return log("}"), a;
}
int one() { return 1; }
struct Other {
  int one() const { return 1; }
  Other(int a)
      : a_(a) {
    check();
    count();
  }
};
})";
  std::string other = std::regex_replace(sum, std::regex("int sum"), "long total");
  other = std::regex_replace(other, std::regex("// adds"), "// another comment");
  other = std::regex_replace(other, std::regex("check"), "refuse");
  EXPECT_THAT(
      equal_bodies({{"deepspeed/zero/a.cpp", "zero", sum}, {"deepspeed/zero/b.cpp", "zero/update", other}}),
      ElementsAre("deepspeed/zero/a.cpp:2 and deepspeed/zero/b.cpp:2"));
  EXPECT_THAT(equal_bodies({{"deepspeed/zero/a.cpp", "zero", sum}, {"deepspeed/comm/b.cpp", "comm", other}}),
              IsEmpty());
}

TEST(Bodies, AreFoundInTheSources) {
  size_t num_functions = 0;
  for (const Source& source : layered_sources()) num_functions += functions_of(source.text).size();
  EXPECT_GT(num_functions, 5000);
}

TEST(LongFiles, OpenWithAComment) {
  EXPECT_THAT(long_files_without_opening(layered_sources()), IsEmpty())
      << "say the order of events that the file implements";
}

TEST(LongFiles, AreNamedWithoutAnOpeningComment) {
  std::string text = "#include <map>\n";
  for (int line = 0; line < 150; ++line) text += "int x;\n";
  EXPECT_THAT(long_files_without_opening({{"a.cpp", "", text},
                                          {"b.cpp", "", "// What happens.\n" + text},
                                          {"c.cpp", "", text.substr(0, text.size() - 7)},
                                          {"d.h", "", text}}),
              ElementsAre("a.cpp"));
}

TEST(Comments, StandWithoutTheirNeighbours) {
  for (const char* folder : {"deepspeed", "python", "apps", "benchmarks", "examples", "tests"})
    EXPECT_THAT(comments_that_lean(sources(folder)), IsEmpty()) << "say what the comment is about";
}

TEST(Comments, AreNamedIfTheyLean) {
  const std::string text = R"(int a;  // Of the group.
/// Does so again.
/// The same.
int b;

// Says it.
// Of course.
const char* c = "// Of a text";
// Offers something.
)";
  EXPECT_THAT(comments_that_lean({{"a.h", "", text}}), ElementsAre("a.h:1", "a.h:2"));
}

}  // namespace
