// The code blocks of a Markdown page. A comment on the line above a block says how the block is tested:
//
//     <!-- test: program NAME -->      a whole program: compiled by itself, run on one rank and on two
//     <!-- test: fragment FIXTURE -->  statements: the body of a test of that fixture (fixtures.h), run on
//     one rank
//     <!-- test: file NAME -->         a file of the page's project: its sh blocks are run where these files
//     lie
//     <!-- test: output -->            what the sh block above prints, in such a project ("..." stands for
//     anything) or, where it is one command of ds_schedule, on any page
//     <!-- test: error -->             texts of errors, which occur in the sources; <words> stand for what
//     varies
//     <!-- test: none, REASON -->      it is not tested
//
// The language says how other blocks are tested: json is read as a config, the programs and options of sh
// exist, the lines of cmake are those of examples/cmake_project, text and python are for the reader alone.
// Each cpp block has a comment.
#pragma once

#include <filesystem>
#include <string>
#include <utility>
#include <vector>

namespace deepspeed::testing {

struct CodeBlock {
  std::string page;      // relative to the root of the project: "docs/engine.md"
  int line = 0;          // of the first line of the text, counted from 1
  std::string language;  // "cpp", or nothing where the page names none
  std::string kind;  // "program", "fragment", "file", "output", "error", "none", or nothing without a comment
  std::string argument;  // NAME, FIXTURE or REASON
  std::string text;      // whole lines
};

struct MarkdownPage {
  std::string path;  // relative to the root of the project
  std::vector<CodeBlock> blocks;
  std::vector<std::pair<int, std::string>> prose;  // the lines outside of blocks, with their numbers
};

/// Throws std::runtime_error, which names page and line, where a block has no end or a comment is none of
/// those above.
MarkdownPage read_markdown(const std::filesystem::path& root, const std::string& page);

/// The pages for users: README.md, docs/*.md and examples/*/README.md, in this order.
std::vector<MarkdownPage> read_pages(const std::filesystem::path& root);

/// "docs/engine.md:12", as compilers name a place.
std::string place_of(const CodeBlock& block);

}  // namespace deepspeed::testing
