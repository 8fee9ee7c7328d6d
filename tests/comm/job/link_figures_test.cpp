#include "deepspeed/comm/job/link_figures.h"

#include <fstream>

#include <gtest/gtest.h>

#include "deepspeed/base/error.h"

#include "tests/support/error_of.h"
#include "tests/support/temporary_folder.h"

namespace deepspeed::comm {
namespace {

using testing::TemporaryFolder;

constexpr LinkFigures kFigures{{12.5, 40}, {2100, 0.1}};

TEST(LinkFigures, ComeBackFromTheirFile) {
  const TemporaryFolder folder;
  const auto path = folder.path() / "links.json";
  std::ofstream(path) << link_figures_json(kFigures).dump();
  const LinkFigures found = read_link_figures(path);
  EXPECT_EQ(found.within_node.latency_us, 12.5);
  EXPECT_EQ(found.within_node.gbps, 40);
  EXPECT_EQ(found.between_nodes.latency_us, 2100);
  EXPECT_EQ(found.between_nodes.gbps, 0.1);
}

TEST(LinkFigures, NameABadFile) {
  const TemporaryFolder folder;
  const auto path = folder.path() / "links.json";
  const auto read = [&](const std::string& text) {
    std::ofstream(path) << text;
    read_link_figures(path);
  };
  EXPECT_ERROR(IoError, read_link_figures(folder.path() / "none.json"), "none.json");
  EXPECT_ERROR(ConfigError, read("{\"within_node\""), path.string());
  EXPECT_ERROR(ConfigError, read("[1]"), path.string(), "[1]", "within_node, between_nodes");
  EXPECT_ERROR(ConfigError, read("{}"), path.string(), "has no within_node", "ds_bench --links");
  Json value = link_figures_json(kFigures);
  value["nodes"] = 2;
  EXPECT_ERROR(ConfigError, read(value.dump()), path.string(), "has a key nodes");
  value = link_figures_json(kFigures);
  value["between_nodes"]["gbps"] = 0;
  EXPECT_ERROR(ConfigError, read(value.dump()), path.string(), "between_nodes.gbps is 0", "above 0");
  value["between_nodes"]["gbps"] = "fast";
  EXPECT_ERROR(ConfigError, read(value.dump()), path.string(), "between_nodes.gbps is \"fast\"");
  value = link_figures_json(kFigures);
  value["within_node"]["latency_us"] = -1;
  EXPECT_ERROR(ConfigError, read(value.dump()), path.string(), "within_node.latency_us is -1", "from 0");
}

}  // namespace
}  // namespace deepspeed::comm
