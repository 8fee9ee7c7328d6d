// Every text of an error that a page quotes occurs in the sources, so that a reader who searches for it finds
// the page, and the page cannot go stale.
#include <algorithm>
#include <filesystem>
#include <regex>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "tests/docs/sources.h"
#include "tests/pages/markdown.h"

namespace {

using namespace deepspeed::testing;
namespace fs = std::filesystem;

using Literals = std::set<std::string>;

// The string literals of a source; neighbours are one, as for the compiler.
Literals literals_of(const std::string& source) {
  Literals result;
  std::string current;
  size_t end = std::string::npos;  // of the literal before
  const std::regex literal(R"re("((?:[^"\\\n]|\\.)*)")re");
  for (std::sregex_iterator it(source.begin(), source.end(), literal), last; it != last; ++it) {
    const size_t begin = size_t(it->position());
    const bool is_neighbour = end != std::string::npos && source.find_first_not_of(" \n", end) == begin;
    if (!is_neighbour) result.insert(std::exchange(current, ""));
    current += std::regex_replace((*it)[1].str(), std::regex(R"(\\(["\\]))"), "$1");
    end = begin + size_t(it->length());
  }
  result.insert(current);
  return result;
}

// Whether literals make up the text: the last part of one, whole ones, and the first part of one. Literals
// that are handed to raise<>() one after the other make one text.
bool are_joined_to(const Literals& literals, const std::string& text) {
  std::vector<bool> reached(text.size() + 1, false);
  reached[0] = true;
  for (size_t at = 0; at < text.size(); ++at) {
    if (!reached[at]) continue;
    const std::string rest = text.substr(at);
    for (const std::string& literal : literals) {
      if (at == 0 ? literal.find(rest) != std::string::npos : literal.starts_with(rest)) return true;
      for (size_t size = 1; size <= std::min(literal.size(), rest.size()); ++size) {
        if (at > 0 && size < literal.size()) continue;
        if (literal.ends_with(rest.substr(0, size))) reached[at + size] = true;
      }
    }
  }
  return reached[text.size()];
}

// A text that a page quotes: its parts between what stands for something that varies ("<n> ranks, <m>
// groups"), and their longer words.
struct Quote {
  explicit Quote(const std::string& block) {
    static const std::regex varies("<[^>]*>"), long_word("[A-Za-z_]{5,}");
    const std::string text = std::regex_replace(block, std::regex("\\s+"), " ");
    for (std::sregex_token_iterator it(text.begin(), text.end(), varies, -1), end; it != end; ++it) {
      parts.push_back(it->str());
    }
    parts.back().erase(parts.back().find_last_not_of(' ') + 1);
    for (const std::string& part : parts) {
      for (std::sregex_iterator it(part.begin(), part.end(), long_word), end; it != end; ++it) {
        words.push_back(it->str());
      }
    }
  }

  std::vector<std::string> parts;
  std::vector<std::string> words;
};

// Most sources lack one of the words, which is soon seen.
bool have_words(const Literals& literals, const Quote& quote) {
  return std::ranges::all_of(quote.words, [&](const std::string& word) {
    return std::ranges::any_of(
        literals, [&](const std::string& literal) { return literal.find(word) != std::string::npos; });
  });
}

bool occurs_in(const Literals& literals, const Quote& quote) {
  return have_words(literals, quote) && std::ranges::all_of(quote.parts, [&](const std::string& part) {
           return are_joined_to(literals, part);
         });
}

std::vector<Literals> literals_of_all_sources() {
  std::vector<Literals> result;
  for (const std::string folder : {"deepspeed", "apps", "cmake"}) {
    for (const fs::path& path : files_below(folder, {".h", ".cpp", ".cmake", ".in"}))
      result.push_back(literals_of(read_text(path)));
  }
  return result;
}

TEST(ErrorTexts, OccurInOneSource) {
  const std::vector<Literals> sources = literals_of_all_sources();
  int num_texts = 0;
  for (const MarkdownPage& page : read_pages(kRoot)) {
    for (const CodeBlock& block : page.blocks) {
      if (block.kind != "error") continue;
      ++num_texts;
      const Quote quote(block.text);
      const bool is_found =
          std::ranges::any_of(sources, [&](const Literals& literals) { return occurs_in(literals, quote); });
      EXPECT_TRUE(is_found) << place_of(block) << ": no source makes this text:\n" << block.text;
    }
  }
  EXPECT_GT(num_texts, 20);
}

TEST(ErrorTexts, AreFoundAcrossLiterals) {
  const Literals literals = literals_of(R"(raise(kWhere, "the rank is ", rank, ", expected 0 "
                                                 "to ", last, it ? "; see" : "", " the guide");)");
  EXPECT_TRUE(occurs_in(literals, Quote("the rank is <3>, expected 0 to <1>; see the guide\n")));
  EXPECT_TRUE(occurs_in(literals, Quote("expected 0 to <1>\n")));
  EXPECT_FALSE(occurs_in(literals, Quote("the rank is <3>, expected 1 to <1>\n")));
  EXPECT_FALSE(occurs_in(literals, Quote("the rank was <3>\n")));
}

}  // namespace
