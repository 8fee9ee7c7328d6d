#include "tests/pipe/engine/resumed_pipeline.h"

#include <iterator>
#include <sstream>

#include <gtest/gtest.h>

#include "tests/support/run_ranks.h"

namespace deepspeed::testing {
namespace {

std::string to_text(const std::vector<double>& values) {
  std::ostringstream text;
  text.precision(17);
  for (const double value : values) text << value << " ";
  return text.str();
}

std::vector<double> from_text(const std::string& text) {
  std::istringstream stream(text);
  return {std::istream_iterator<double>(stream), std::istream_iterator<double>()};
}

}  // namespace

std::vector<double> train_and_save(const PipelineRun& run, int num_ranks, const std::string& folder) {
  const auto outcomes = run_ranks_collect(num_ranks, [&](comm::World&) {
    const auto engine = initialize(small_module(run), {.config = small_config(run)}).engine;
    train_on(*engine, run, 0, kSavedAt);
    engine->save_checkpoint(folder);
    return to_text(train_on(*engine, run, kSavedAt, kSteps));
  });
  return from_text(outcomes.front());
}

std::vector<double> resume(const PipelineRun& run, int num_ranks, const std::string& folder,
                           bool is_universal) {
  const auto outcomes = run_ranks_collect(num_ranks, [&](comm::World&) {
    Json config = small_config(run);
    if (is_universal) config["checkpoint"] = {{"load_universal", true}};
    const auto engine = initialize(small_module(run), {.config = config}).engine;
    const LoadResult loaded = engine->load_checkpoint(folder);
    EXPECT_FALSE(loaded.path.empty());
    EXPECT_EQ(engine->global_steps(), kSavedAt);
    return to_text(train_on(*engine, run, kSavedAt, kSteps));
  });
  return from_text(outcomes.front());
}

void expect_equal(const std::vector<double>& losses, const std::vector<double>& expected, double tolerance,
                  const std::string& what) {
  ASSERT_EQ(losses.size(), expected.size());
  for (size_t step = 0; step < losses.size(); ++step)
    EXPECT_NEAR(losses[step], expected[step], tolerance * expected[step]) << what << ", step " << step;
}

}  // namespace deepspeed::testing
