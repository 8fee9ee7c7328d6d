// extract_blocks ROOT FOLDER: writes what the pages of the project at ROOT show as sources to FOLDER:
// NAME.cpp of each program, fragments.cpp with a test of each fragment, and NAME.sh of each page with a
// project (docs/NAME.md), which makes its files and runs its commands. A file that would stay the same is
// left alone, so that nothing is compiled again.
#include <cctype>
#include <exception>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <iterator>
#include <map>
#include <string>

#include "tests/pages/markdown.h"

namespace {

using deepspeed::testing::CodeBlock;
using deepspeed::testing::MarkdownPage;
namespace fs = std::filesystem;

// It lets the compiler name the page's line where a fragment does not compile.
std::string line_mark(const CodeBlock& block) {
  return "#line " + std::to_string(block.line) + " \"" + block.page + "\"\n";
}

// "docs/engine.md:12" as a part of a name: "docs_engine_md_12".
std::string name_of(const CodeBlock& block) {
  std::string name = place_of(block);
  for (char& letter : name) {
    if (std::isalnum(static_cast<unsigned char>(letter)) == 0) letter = '_';
  }
  return name;
}

std::string test_of(const CodeBlock& fragment) {
  return "TEST_F(" + fragment.argument + ", " + name_of(fragment) + ") {\n" + line_mark(fragment) +
         fragment.text + "}\n\n";
}

// The text of a block as the input of a command.
std::string with_input(const std::string& command, const CodeBlock& block) {
  const std::string end = "END_OF_" + name_of(block);
  return command + " <<'" + end + "'\n" + block.text + end + "\n";
}

// One step of a project's script, in words of run_project.sh.
std::string step_of(const CodeBlock& block) {
  if (block.kind == "file") return with_input("cat >" + block.argument, block);
  if (block.kind == "output") return with_input("expect_output '" + place_of(block) + "'", block);
  if (!block.kind.empty() || block.language != "sh") return "";
  return "begin_step '" + place_of(block) + "'\n" + block.text + "end_step\n";
}

bool is_project(const MarkdownPage& page) {
  for (const CodeBlock& block : page.blocks) {
    if (block.kind == "file") return true;
  }
  return false;
}

using Sources = std::map<std::string, std::string>;  // by file name

void add_page(const MarkdownPage& page, Sources& sources) {
  for (const CodeBlock& block : page.blocks) {
    if (block.kind == "program") sources[block.argument + ".cpp"] += line_mark(block) + block.text;
    if (block.kind == "fragment") sources["fragments.cpp"] += test_of(block);
  }
  if (!is_project(page)) return;
  std::string& script = sources[fs::path(page.path).stem().string() + ".sh"];
  for (const CodeBlock& block : page.blocks) script += step_of(block);
}

Sources make_sources(const fs::path& root) {
  Sources sources;
  sources["fragments.cpp"] = "#include \"tests/pages/fixtures.h\"\n\nnamespace deepspeed_pages {\n\n";
  for (const MarkdownPage& page : deepspeed::testing::read_pages(root)) add_page(page, sources);
  sources["fragments.cpp"] += "}  // namespace deepspeed_pages\n";
  return sources;
}

void write_changed(const fs::path& path, const std::string& text) {
  std::ifstream old(path, std::ios::binary);
  if (old && std::string(std::istreambuf_iterator<char>(old), {}) == text) return;
  std::ofstream(path, std::ios::binary) << text;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) {
    std::cerr << "usage: extract_blocks ROOT FOLDER\n";
    return 2;
  }
  try {
    fs::create_directories(argv[2]);
    for (const auto& [name, text] : make_sources(argv[1])) write_changed(fs::path(argv[2]) / name, text);
  } catch (const std::exception& error) {
    std::cerr << error.what() << "\n";
    return 1;
  }
  return 0;
}
