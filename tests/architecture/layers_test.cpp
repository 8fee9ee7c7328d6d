// Holds the source tree against the rules that ARCHITECTURE.md states.
#include <filesystem>
#include <fstream>
#include <map>
#include <regex>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include <gtest/gtest.h>

namespace {

namespace fs = std::filesystem;
const fs::path kRoot = DEEPSPEED_SOURCE_DIR;

std::string read(const fs::path& path) {
  std::ifstream in(path);
  std::ostringstream text;
  text << in.rdbuf();
  return text.str();
}

struct Source {
  fs::path path;       // relative to the root
  std::string folder;  // of deepspeed/: "zero"
  std::string text;
};

std::vector<Source> sources(const fs::path& below = "deepspeed") {
  std::vector<Source> result;
  for (const auto& entry : fs::recursive_directory_iterator(kRoot / below)) {
    const std::string extension = entry.path().extension();
    if (extension != ".h" && extension != ".cpp" && extension != ".cu" && extension != ".cuh") continue;
    const fs::path relative = fs::relative(entry.path(), kRoot);
    const fs::path inside = fs::relative(entry.path(), kRoot / below);
    const bool at_top = std::distance(inside.begin(), inside.end()) == 1;
    result.push_back({relative, at_top ? "" : inside.begin()->string(), read(entry.path())});
  }
  return result;
}

using Edges = std::map<std::string, std::set<std::string>>;

// The table of ARCHITECTURE.md, closed under "may include what these may include".
Edges allowed_edges() {
  const std::string text = read(kRoot / "ARCHITECTURE.md");
  Edges edges;
  const std::regex line(R"(^([a-z0-9_]+) +->([a-z0-9_ ]*)$)");
  std::istringstream lines(text.substr(text.find("## Layers")));
  for (std::string row; std::getline(lines, row);) {
    std::smatch match;
    if (!std::regex_match(row, match, line)) continue;
    std::istringstream targets(match[2].str());
    edges[match[1]] = {};
    for (std::string target; targets >> target;) edges[match[1]].insert(target);
  }
  for (size_t round = 0; round < edges.size(); ++round) {
    for (auto& [folder, targets] : edges) {
      const auto direct = targets;
      for (const auto& target : direct) targets.insert(edges[target].begin(), edges[target].end());
    }
  }
  return edges;
}

TEST(Layers, TableNamesEveryFolderAndHasNoCycle) {
  const Edges edges = allowed_edges();
  for (const auto& entry : fs::directory_iterator(kRoot / "deepspeed")) {
    if (!entry.is_directory()) continue;
    EXPECT_TRUE(edges.count(entry.path().filename())) << entry.path().filename();
  }
  for (const auto& [folder, targets] : edges)
    EXPECT_FALSE(targets.count(folder)) << folder << " is in a cycle";
}

TEST(Layers, IncludesGoDownwardOnly) {
  const Edges edges = allowed_edges();
  const std::regex include(R"#(#include "deepspeed/([a-z0-9_]+)/)#");
  for (const Source& source : sources()) {
    if (source.folder.empty()) continue;
    for (std::sregex_iterator match(source.text.begin(), source.text.end(), include), end; match != end;
         ++match) {
      const std::string target = (*match)[1];
      EXPECT_TRUE(target == source.folder || edges.at(source.folder).count(target))
          << source.path << " includes deepspeed/" << target << ", which the table does not allow";
    }
  }
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
       {"deepspeed/device/", "deepspeed/kernels/", "deepspeed/comm/nccl/"}},
      {R"(model_states\.pt|optim_states\.pt)", {"deepspeed/checkpoint/"}},
      {R"(\b_?exit\s*\()", {"deepspeed/launcher/"}},
      {R"(#include <(torch/torch|torch/all|ATen/ATen)\.h>)", {}},
      {R"(#include <(spdlog|fmt)/)", {"deepspeed/base/log.cpp"}},
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

TEST(Layers, NoDrawersForEverything) {
  const std::set<std::string> banned = {"utils", "util", "common", "helpers", "helper", "misc"};
  for (const Source& source : sources()) {
    EXPECT_FALSE(banned.count(source.path.stem())) << source.path;
    EXPECT_EQ(source.text.find("using namespace std"), std::string::npos) << source.path;
  }
}

TEST(Layers, FilesStaySmall) {
  for (const Source& source : sources()) {
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
