// The JSON of the pages is read as a config. A part of one gets what a config needs beside it.
#include <exception>
#include <string>

#include <gtest/gtest.h>

#include "deepspeed/base/json_file.h"
#include "deepspeed/config/config.h"

#include "tests/docs/sources.h"
#include "tests/pages/markdown.h"

namespace {

using namespace deepspeed::testing;

deepspeed::Json whole_config(const CodeBlock& block) {
  const bool is_object = block.text.starts_with("{");
  auto config = deepspeed::parse_json(is_object ? block.text : "{" + block.text + "}", place_of(block));
  if (!config.contains("train_batch_size")) config["train_batch_size"] = 8;
  return config;
}

TEST(PageConfigs, AreReadAsConfigs) {
  int num_configs = 0;
  for (const MarkdownPage& page : read_pages(kRoot)) {
    for (const CodeBlock& block : page.blocks) {
      if (block.language != "json" || block.kind == "none") continue;
      ++num_configs;
      EXPECT_NO_THROW(deepspeed::config::load_config(whole_config(block), /*data_parallel_world_size=*/1))
          << place_of(block);
    }
  }
  EXPECT_GT(num_configs, 0);
}

}  // namespace
