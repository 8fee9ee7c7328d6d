// When ranks diverge or die, only this library writes to standard error.
#include <fstream>
#include <sstream>
#include <thread>

#include <ATen/ATen.h>

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "deepspeed/base/error.h"
#include "deepspeed/base/log.h"
#include "deepspeed/comm/init.h"

#include "tests/support/error_of.h"
#include "tests/support/join_world.h"
#include "tests/support/run_ranks.h"
#include "tests/support/temporary_folder.h"

namespace deepspeed::comm {
namespace {

using testing::error_of;
using testing::fork_ranks;
using ::testing::HasSubstr;
using testing::join_world;
using ::testing::Not;
using namespace std::chrono_literals;

/// Returns what the ranks of `program` write to standard error from the start.
std::string standard_error_of(int ranks, const std::function<void(int)>& program) {
  const testing::TemporaryFolder folder;
  const std::string path = folder.string() + "/stderr";
  fork_ranks(ranks, [&](int rank) {
    const int file = ::open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND, 0600);
    ::dup2(file, STDERR_FILENO);
    program(rank);
    return std::string();
  });
  std::ostringstream text;
  text << std::ifstream(path).rdbuf();
  return text.str();
}

void diverge(int rank) {
  auto world = join_world(30s);
  error_of<CommError>([&] { world.group().all_reduce(at::ones({rank == 0 ? 10 : 12})); });
  std::this_thread::sleep_for(1s);
}

TEST(StandardError, HasNoTracesOfTheBackendWhereRanksDiverge) {
  EXPECT_EQ(standard_error_of(2, diverge), "");
}

TEST(StandardError, HasNoTracesOfTheBackendWhereTheRankOfTheStoreDies) {
  EXPECT_EQ(standard_error_of(3,
                              [](int rank) {
                                auto world = join_world(30s);
                                auto tensor = at::ones({1 << 16});
                                world.group().all_reduce(tensor);
                                if (rank == 0) std::_Exit(3);
                                error_of<CommError>([&] {
                                  for (int i = 0; i < 20; ++i) world.group().all_reduce(tensor);
                                });
                              }),
            "");
}

TEST(StandardError, HasNoTracesOfTheBackendWhereRanksNeverMeet) {
  EXPECT_EQ(standard_error_of(1,
                              [](int) {
                                ::setenv("WORLD_SIZE", "2", 1);
                                ::setenv("RANK", "1", 1);
                                error_of<CommError>([] { join_world(2s); });
                              }),
            "");
}

}  // namespace
}  // namespace deepspeed::comm
