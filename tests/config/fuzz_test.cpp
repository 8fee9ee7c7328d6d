// Altered configs load or throw one of the library's errors: no other exception, no crash. The seed is fixed.
#include <random>
#include <string>

#include <gtest/gtest.h>

#include "tests/config/load.h"

namespace deepspeed::config {
namespace {

constexpr const char* kSample = R"({
  "train_batch_size": 32, // samples
  "steps_per_print": 10, "gradient_clipping": 0.5, "seed": 1,
  "fp16": {"enabled": true, "loss_scale": 0, "hysteresis": 2,},
  "optimizer": {"type": "Adam", "params": {"lr": 1e-3, "betas": [0.9, 0.999]}},
  "zero_optimization": {"stage": 2, "cpu_offload": false, "reduce_bucket_size": 5e8, "overlap_comm": null},
  "checkpoint": {"tag_validation": "Fail"}, /* end */
})";

std::string mutate(std::string text, std::mt19937& random) {
  static const std::string kPieces[] = {"{",
                                        "}",
                                        "[",
                                        "]",
                                        ",",
                                        ":",
                                        "\"",
                                        "null",
                                        "true",
                                        "1e400",
                                        "-1",
                                        "\"auto\"",
                                        "//",
                                        "/*",
                                        "#",
                                        "\\",
                                        "\\u0000",
                                        "\xff",
                                        "99999999999999999999",
                                        "\"stage\":"};
  const int edits = 1 + static_cast<int>(random() % 4);
  for (int i = 0; i < edits && !text.empty(); ++i) {
    const size_t at = random() % text.size();
    switch (random() % 4) {
      case 0:
        text.erase(at, 1 + random() % 8);
        break;
      case 1:
        text.insert(at, kPieces[random() % std::size(kPieces)]);
        break;
      case 2:
        text[at] = static_cast<char>(random() % 256);
        break;
      default:
        text.insert(at, text.substr(random() % text.size(), random() % 40));
    }
  }
  return text;
}

/// Whether the text loads; fails the test for what is no error of the library.
bool loads(const std::string& text) {
  try {
    load_config("{" + text.substr(text.empty() ? 0 : 1), 2);
    return true;
  } catch (const ConfigError& error) {
    EXPECT_NE(std::string(error.what()).find(": "), std::string::npos) << error.what();
  }
  return false;
}

TEST(Fuzz, AlteredTextLoadsOrIsRefusedWithAConfigError) {
  std::mt19937 random(20240607);
  int loaded = 0;
  constexpr int kRuns = 4000;
  for (int run = 0; run < kRuns; ++run) loaded += loads(mutate(kSample, random)) ? 1 : 0;
  EXPECT_GT(loaded, 0);
  EXPECT_LT(loaded, kRuns);
}

TEST(Fuzz, EveryPrefixIsRefused) {
  const std::string sample = kSample;
  for (size_t length = 1; length < sample.size(); ++length)
    EXPECT_FALSE(loads(sample.substr(0, length))) << length;
  EXPECT_TRUE(loads(sample));
}

}  // namespace
}  // namespace deepspeed::config
