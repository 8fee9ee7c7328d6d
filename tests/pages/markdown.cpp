#include "tests/pages/markdown.h"

#include <algorithm>
#include <fstream>
#include <stdexcept>

namespace deepspeed::testing {

namespace {

namespace fs = std::filesystem;

const std::string kFence = "```";
const std::string kComment = "<!-- test: ";

struct Comment {
  std::string kind;
  std::string argument;
};

[[noreturn]] void complain(const std::string& page, int line, const std::string& what) {
  throw std::runtime_error(page + ":" + std::to_string(line) + ": " + what);
}

// "<!-- test: fragment Training -->" says ("fragment", "Training").
Comment parse_comment(const std::string& page, int line, const std::string& text) {
  const size_t end = text.find(" -->");
  if (end == std::string::npos) complain(page, line, "the comment does not end on its line");
  const std::string words = text.substr(kComment.size(), end - kComment.size());
  const size_t space = words.find_first_of(" ,");
  Comment comment{words.substr(0, space), ""};
  if (space != std::string::npos) comment.argument = words.substr(words.find_first_not_of(" ,", space));
  const bool is_alone = comment.kind == "output" || comment.kind == "error";
  const bool has_argument = comment.kind == "program" || comment.kind == "fragment" ||
                            comment.kind == "file" || comment.kind == "none";
  if (!is_alone && !has_argument) complain(page, line, "no block is tested as '" + comment.kind + "'");
  if (comment.argument.empty() == has_argument)
    complain(page, line, "got '" + words + "', see tests/pages/markdown.h");
  return comment;
}

class PageReader {
 public:
  PageReader(const fs::path& root, const std::string& page) : in_(root / page) {
    result_.path = page;
    if (!in_) complain(page, 0, "the page cannot be read");
  }

  MarkdownPage read() {
    while (next()) {
      if (text_.starts_with(kFence)) {
        read_block();
      } else if (text_.starts_with(kComment)) {
        comment_ = parse_comment(result_.path, line_, text_);
      } else {
        if (!comment_.kind.empty()) complain(result_.path, line_, "a block follows the line of its comment");
        result_.prose.emplace_back(line_, text_);
      }
    }
    return std::move(result_);
  }

 private:
  bool next() {
    ++line_;
    return static_cast<bool>(std::getline(in_, text_));
  }

  void read_block() {
    CodeBlock block{result_.path,  line_ + 1,         text_.substr(kFence.size()),
                    comment_.kind, comment_.argument, ""};
    comment_ = {};
    while (next() && text_ != kFence) block.text += text_ + "\n";
    if (!in_) complain(result_.path, block.line, "the block does not end");
    result_.blocks.push_back(std::move(block));
  }

  std::ifstream in_;
  MarkdownPage result_;
  Comment comment_;
  std::string text_;
  int line_ = 0;
};

// Paths of the Markdown files in a folder, sorted.
std::vector<std::string> pages_in(const fs::path& root, const fs::path& folder) {
  std::vector<std::string> result;
  for (const auto& entry : fs::directory_iterator(root / folder)) {
    if (entry.path().extension() == ".md") result.push_back(fs::relative(entry.path(), root));
  }
  std::sort(result.begin(), result.end());
  return result;
}

}  // namespace

MarkdownPage read_markdown(const fs::path& root, const std::string& page) {
  return PageReader(root, page).read();
}

std::vector<MarkdownPage> read_pages(const fs::path& root) {
  std::vector<MarkdownPage> result = {read_markdown(root, "README.md")};
  for (const std::string& page : pages_in(root, "docs")) result.push_back(read_markdown(root, page));
  std::vector<std::string> examples;
  for (const auto& entry : fs::directory_iterator(root / "examples")) {
    if (entry.is_directory()) examples.push_back(fs::relative(entry.path(), root));
  }
  std::sort(examples.begin(), examples.end());
  for (const std::string& example : examples) {
    for (const std::string& page : pages_in(root, example)) result.push_back(read_markdown(root, page));
  }
  return result;
}

std::string place_of(const CodeBlock& block) { return block.page + ":" + std::to_string(block.line); }

}  // namespace deepspeed::testing
