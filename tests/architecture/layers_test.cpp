// Holds the source tree against the rules that ARCHITECTURE.md states.
#include <filesystem>
#include <map>
#include <regex>
#include <set>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "tests/architecture/sources.h"

namespace {

namespace fs = std::filesystem;
using namespace deepspeed::testing;

using Edges = std::map<std::string, std::set<std::string>>;

// Rows "a -> b c" of ARCHITECTURE.md between folders, and of folders.txt inside of a folder: "a/x y -> z",
// where the right names sub-folders of a, as each name on the left does.
Edges listed_edges() {
  const std::string tour = read_source(source_root() / "ARCHITECTURE.md");
  const std::string text = tour.substr(tour.find("## Layers")) +
                           read_source(source_root() / "tests" / "architecture" / "folders.txt");
  Edges edges;
  const std::regex line(R"(^([a-z0-9_]+)(/[a-z0-9_ ]*)? +->([a-z0-9_ ]*)$)");
  std::istringstream lines(text);
  for (std::string row; std::getline(lines, row);) {
    std::smatch match;
    if (!std::regex_match(row, match, line)) continue;
    const std::string folder = match[1];
    const bool is_inside = match[2].matched;
    const auto words = [&](int part, size_t begin) {
      std::istringstream stream(match[part].str().substr(begin));
      std::set<std::string> found;
      for (std::string word; stream >> word;) found.insert(is_inside ? folder + "/" + word : word);
      return found;
    };
    std::set<std::string> rows = is_inside ? words(2, 1) : std::set<std::string>{folder};
    if (rows.empty()) rows = {folder + "/"};
    for (const std::string& row_name : rows) edges[row_name].merge(words(3, 0));
  }
  return edges;
}

// Closed under "may include what these may include".
Edges allowed_edges() {
  Edges edges = listed_edges();
  for (size_t round = 0; round < edges.size(); ++round) {
    for (auto& [folder, targets] : edges) {
      const auto direct = targets;
      for (const auto& target : direct) targets.insert(edges[target].begin(), edges[target].end());
    }
  }
  return edges;
}

struct Include {
  fs::path path;     // of the file that includes
  std::string from;  // keys of listed_edges()
  std::string to;
};

// Includes that leave a place. Between folders the keys are "zero" and "comm", inside of one "zero/", which
// is the folder's own top level, "zero/update" and so on.
std::vector<Include> includes() {
  const std::regex include(R"#(#include "(?:deepspeed|python)/([a-z0-9_/]+)/)#");
  std::vector<Include> found;
  for (const Source& source : layered_sources()) {
    if (source.folder.empty()) continue;
    for (std::sregex_iterator match(source.text.begin(), source.text.end(), include), end; match != end;
         ++match) {
      const std::string target = place_of((*match)[1].str());
      if (target == source.folder) continue;
      if (first_of(target) != first_of(source.folder)) {
        found.push_back({source.path, first_of(source.folder), first_of(target)});
        continue;
      }
      const auto key = [](const std::string& place) {
        return place.find('/') == std::string::npos ? place + "/" : place;
      };
      found.push_back({source.path, key(source.folder), key(target)});
    }
  }
  return found;
}

TEST(Layers, TablesNameEveryFolderAndHaveNoCycle) {
  const Edges edges = allowed_edges();
  for (const Source& source : layered_sources()) {
    if (source.folder.empty()) continue;
    EXPECT_TRUE(edges.contains(first_of(source.folder))) << source.path;
    if (source.folder.find('/') == std::string::npos) continue;
    EXPECT_TRUE(edges.contains(source.folder)) << source.path << ": a row of its sub-folder is missing";
  }
  for (const auto& [folder, targets] : edges)
    EXPECT_FALSE(targets.contains(folder)) << folder << " is in a cycle";
}

TEST(Layers, IncludesGoDownwardOnly) {
  const Edges edges = allowed_edges();
  for (const Include& include : includes()) {
    const auto row = edges.find(include.from);
    EXPECT_TRUE(row != edges.end() && row->second.contains(include.to))
        << include.path << " includes " << include.to << ", which the tables do not allow";
  }
}

TEST(Layers, TablesAllowOnlyWhatIsUsed) {
  std::set<std::pair<std::string, std::string>> used;
  for (const Include& include : includes()) used.emplace(include.from, include.to);
  for (const auto& [folder, targets] : listed_edges()) {
    for (const std::string& target : targets)
      EXPECT_TRUE(used.contains({folder, target})) << folder << " -> " << target << " is used by no include";
  }
}

TEST(Layers, FoldersStaySmall) {
  std::map<std::string, int> own, all;
  for (const Source& source : layered_sources()) {
    ++own[source.path.parent_path().string()];
    if (!source.folder.empty()) ++all[first_of(source.folder)];
  }
  for (const auto& [folder, count] : own)
    EXPECT_LE(count, 24) << folder << ": make sub-folders, one idea each";
  const Edges edges = listed_edges();
  for (const auto& [folder, count] : all) {
    if (count <= 20) continue;
    const auto row = edges.lower_bound(folder + "/");
    EXPECT_TRUE(row != edges.end() && first_of(row->first) == folder)
        << folder << " has " << count << " files and no rows of sub-folders";
  }
}

TEST(Layers, PathsOfTheTourExist) {
  const std::string text = read_source(source_root() / "ARCHITECTURE.md");
  const std::regex quoted("`([a-z0-9_]+(/[A-Za-z0-9_.]+)+)/?`");
  size_t num_paths = 0;
  for (std::sregex_iterator match(text.begin(), text.end(), quoted), end; match != end; ++match) {
    const std::string path = (*match)[1];
    bool exists = false;
    for (const char* ending : {"", ".h", ".cpp"}) {
      exists |= fs::exists(source_root() / (path + ending)) ||
                fs::exists(source_root() / "deepspeed" / (path + ending));
    }
    EXPECT_TRUE(exists) << "ARCHITECTURE.md names " << path << ", which does not exist";
    ++num_paths;
  }
  EXPECT_GT(num_paths, 30);
}

struct Home {
  const char* pattern;
  std::vector<std::string> allowed;  // prefixes of paths
};

TEST(Layers, NamesStayInTheirHome) {
  const std::vector<Home> homes = {
      {R"(\bc10d::)", {"deepspeed/comm/"}},
      {R"(\bgetenv\s*\()", {"deepspeed/base/env.cpp"}},
      {R"(\bat::cuda\b|cudaStream_t|getCurrentCUDAStream)",
       {"deepspeed/device/", "deepspeed/kernels/", "deepspeed/comm/backends/nccl/"}},
      {R"(model_states\.pt|optim_states\.pt)", {"deepspeed/checkpoint/"}},
      {R"(\b_?exit\s*\()", {"deepspeed/launcher/"}},
      {R"(#include <(torch/torch|torch/all|ATen/ATen)\.h>)", {}},
  };
  const std::regex comment(R"(//[^\n]*)");
  for (const Source& source : sources()) {
    const std::string code = std::regex_replace(source.text, comment, "");
    for (const Home& home : homes) {
      bool at_home = false;
      for (const std::string& prefix : home.allowed) at_home |= source.path.string().rfind(prefix, 0) == 0;
      if (at_home) continue;
      EXPECT_FALSE(std::regex_search(code, std::regex(home.pattern))) << source.path << ": " << home.pattern;
    }
  }
}

TEST(Layers, KernelsInCudaFilesSeeNoTensor) {
  for (const Source& source : sources()) {
    if (source.path.extension() != ".cu" && source.path.extension() != ".cuh") continue;
    EXPECT_EQ(source.text.find("#include <ATen"), std::string::npos) << source.path;
    EXPECT_EQ(source.text.find("#include <torch"), std::string::npos) << source.path;
  }
}

TEST(Layers, HaveNoFilesNamedUtils) {
  const std::set<std::string> banned = {"utils", "util", "common", "helpers", "helper", "misc"};
  for (const Source& source : layered_sources()) {
    EXPECT_FALSE(banned.count(source.path.stem())) << source.path;
    EXPECT_EQ(source.text.find("using namespace std"), std::string::npos) << source.path;
  }
}

TEST(Layers, FilesStaySmall) {
  for (const Source& source : layered_sources()) {
    const auto lines = std::count(source.text.begin(), source.text.end(), '\n');
    EXPECT_LE(lines, 450) << source.path << ": split it, one concept a file";
  }
}

// CLI11's own exit codes are 100 and more, where users and scripts expect 2.
TEST(Programs, EndAsTheLauncherSays) {
  for (const char* folder : {"apps", "examples", "benchmarks", "tests/deepspeed_peer"}) {
    for (const Source& source : sources(folder)) {
      for (const char* own : {"CLI11_PARSE", "app.exit("}) {
        EXPECT_EQ(source.text.find(own), std::string::npos)
            << source.path << " has " << own << ", expected launcher::exit_of_command_line()";
      }
    }
  }
}

}  // namespace
