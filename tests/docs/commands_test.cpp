// The sh blocks of the pages name programs and options that exist. The lines of cmake blocks are those of the
// example that a test builds.
#include <array>
#include <cstdio>
#include <filesystem>
#include <map>
#include <regex>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "tests/docs/sources.h"
#include "tests/pages/markdown.h"

namespace {

using namespace deepspeed::testing;
namespace fs = std::filesystem;

using Words = std::vector<std::string>;

// The commands of a block: without comments, texts in quotes and variables that are set for one, lines that
// end in \ joined.
std::vector<Words> commands_of(const std::string& block) {
  std::string text = std::regex_replace(block, std::regex(R"(\\\n)"), " ");
  text = std::regex_replace(text, std::regex(R"((^|\n|\s)#[^\n]*)"), "$1");
  text = std::regex_replace(text, std::regex(R"("[^"]*")"), "text");
  text = std::regex_replace(text, std::regex(R"(&&|\|\||[|;])"), "\n");
  std::vector<Words> commands;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    Words words;
    std::istringstream in(line);
    for (std::string word; in >> word;) {
      const bool sets_variable = words.empty() && std::regex_match(word, std::regex(R"(\w+=.*)"));
      if (!sets_variable) words.push_back(word);
    }
    if (!words.empty()) commands.push_back(words);
  }
  return commands;
}

// Where the binary of a program of this project lies; nothing for other programs.
fs::path binary_of(const std::string& word) {
  const std::string name = fs::path(word).filename();
  if (fs::exists(kRoot / "apps" / (name + ".cpp"))) return kBuild / "bin" / name;
  if (word.find("examples/") != std::string::npos && fs::exists(kRoot / "examples" / name / "main.cpp")) {
    return kBuild / "examples" / name;
  }
  return {};
}

bool is_command(const std::string& word) {
  static const std::set<std::string> known = {"cat",   "cd",     "cmake", "cp",  "export", "ls", "make",
                                              "mkdir", "mpirun", "ninja", "pip", "python", "rm", "srun"};
  if (known.contains(word) || !binary_of(word).empty()) return true;
  if (word.find('/') == std::string::npos) return false;
  return word.ends_with(".sh") ? fs::exists(kRoot / word)
                               : word.starts_with("./");  // else a program of the reader's
}

// What a command prints, errors too.
std::string output_of(const std::string& command) {
  std::string text;
  FILE* pipe = ::popen((command + " 2>&1").c_str(), "r");
  std::array<char, 4096> bytes;
  while (const size_t count = std::fread(bytes.data(), 1, bytes.size(), pipe))
    text.append(bytes.data(), count);
  ::pclose(pipe);
  return text;
}

// What a program, or one of its commands, says of its options.
const std::string& help_of(const std::string& program) {
  static std::map<std::string, std::string> known;
  const auto [entry, is_new] = known.try_emplace(program);
  if (is_new) entry->second = output_of(program + " --help");
  return entry->second;
}

bool has_command(const std::string& program, const std::string& word) {
  return std::regex_match(word, std::regex("[a-z-]+")) &&
         help_of(program).find("\n  " + word + "  ") != std::string::npos;
}

// Whether the help names the option of a word such as --steps or --steps=4.
bool knows_option(const std::string& program, const std::string& word) {
  const std::string option = word.substr(0, word.find('='));
  return std::regex_search(help_of(program), std::regex("(^|[\\s,\\[])" + option + "(?![\\w-])"));
}

// Options belong to the last program of this project before them; those of a program of the reader's are its
// own.
void check_options(const Words& command, const std::string& place) {
  std::string program;
  for (const std::string& word : command) {
    if (const fs::path binary = binary_of(word); !binary.empty()) {
      program = fs::exists(binary) ? binary.string() : "";  // examples need not be built
    } else if (!program.empty() && has_command(program, word)) {
      program += " " + word;
    } else if (word.starts_with("./") || word.ends_with(".py")) {
      program.clear();
    } else if (!program.empty() && std::regex_match(word, std::regex("--?[a-z].*"))) {
      EXPECT_TRUE(knows_option(program, word)) << place << ": " << program << " has no option " << word;
    }
  }
}

TEST(PageCommands, NameProgramsAndOptionsThatExist) {
  for (const MarkdownPage& page : read_pages(kRoot)) {
    for (const CodeBlock& block : page.blocks) {
      if (block.language != "sh" || block.kind == "none") continue;
      for (const Words& command : commands_of(block.text)) {
        EXPECT_TRUE(is_command(command[0])) << place_of(block) << ": " << command[0];
        check_options(command, place_of(block));
      }
    }
  }
}

TEST(PageCommands, DrawingsOfSchedulesAreThoseThatTheProgramPrints) {
  int drawings = 0;
  for (const MarkdownPage& page : read_pages(kRoot)) {
    for (size_t i = 1; i < page.blocks.size(); ++i) {
      const CodeBlock& command = page.blocks[i - 1];
      if (page.blocks[i].kind != "output" || !command.text.starts_with("ds_schedule ")) continue;
      EXPECT_EQ(page.blocks[i].text, output_of((kBuild / "bin" / command.text).string()))
          << place_of(command);
      ++drawings;
    }
  }
  EXPECT_GE(drawings, 3);
}

TEST(PageCommands, NameEachProgramThatIsInstalled) {
  const std::string page = read_text(kRoot / "docs/installation.md");
  for (const auto& source : fs::directory_iterator(kRoot / "apps")) {
    if (source.path().extension() != ".cpp") continue;
    EXPECT_NE(page.find("`" + source.path().stem().string() + "`"), std::string::npos)
        << "docs/installation.md lists no " << source.path().stem();
  }
  const std::string report = output_of((kBuild / "bin/ds_report").string());
  for (const char* line : {"deepspeed-cpp ", "LibTorch ", "CUDA kernels ", "CUDA devices ", "io_uring "})
    EXPECT_NE(report.find(line), std::string::npos) << line << "is not in:\n" << report;
}

TEST(PageCommands, AnUnknownOptionIsSeen) {
  EXPECT_TRUE(knows_option(binary_of("deepspeed"), "--num_procs"));
  EXPECT_FALSE(knows_option(binary_of("deepspeed"), "--num_proc"));
  EXPECT_FALSE(is_command("./no_such.sh"));
  EXPECT_FALSE(is_command("dipspeed"));
}

TEST(PageCommands, LinesOfCMakeAreThoseOfTheExample) {
  const std::string example = read_text(kRoot / "examples/cmake_project/CMakeLists.txt");
  for (const MarkdownPage& page : read_pages(kRoot)) {
    for (const CodeBlock& block : page.blocks) {
      if (block.language != "cmake" || !block.kind.empty()) continue;
      std::istringstream lines(block.text);
      for (std::string line; std::getline(lines, line);) {
        EXPECT_NE(example.find(line), std::string::npos) << place_of(block) << ": " << line;
      }
    }
  }
}

}  // namespace
