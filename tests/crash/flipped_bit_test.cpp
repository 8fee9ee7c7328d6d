// One bit of a checkpoint is flipped, anywhere in its files: loading says so, or what it loads is the same.
// CRASH_ROUNDS=1000 makes more flips than a usual run of the tests.
#include <cstdio>
#include <fstream>
#include <map>
#include <random>

#include <gtest/gtest.h>

#include "deepspeed/base/env.h"

#include "tests/crash/saved_run.h"
#include "tests/support/run_ranks.h"
#include "tests/support/temporary_folder.h"

namespace deepspeed::testing {
namespace {

namespace fs = std::filesystem;

struct Flip {
  fs::path file;
  uint64_t byte = 0;
  int bit = 0;

  /// Flips the bit in the file. A second call takes that back.
  void apply() const {
    std::fstream stream(file, std::ios::in | std::ios::out | std::ios::binary);
    stream.seekg(int64_t(byte));
    const char changed = char(stream.get() ^ (1 << bit));
    stream.seekp(int64_t(byte));
    stream.put(changed);
  }
};

/// Each byte of the tag's files is as likely as another; every tenth flip is in one of the two small files.
class FlipSequence {
 public:
  FlipSequence(const fs::path& dir, const std::string& tag)
      : small_({dir / "latest", dir / tag / "manifest.json"}) {
    for (const std::string& name : names_in(dir / tag)) files_.push_back(dir / tag / name);
    for (const fs::path& file : files_) sizes_.push_back(double(fs::file_size(file)));
  }

  Flip next() {
    const bool small = random_() % 10 == 0;
    std::discrete_distribution<size_t> by_size(sizes_.begin(), sizes_.end());
    const fs::path file = small ? small_[random_() % 2] : files_[by_size(random_)];
    return {file, random_() % fs::file_size(file), int(random_() % 8)};
  }

 private:
  std::vector<fs::path> small_, files_;
  std::vector<double> sizes_;
  std::mt19937_64 random_{1};
};

struct FlipCounts {
  int detected = 0, harmless = 0, missed = 0;
};

TEST(FlippedBit, IsFoundByLoadingOrChangesNothing) {
  const int rounds = std::stoi(env::get("CRASH_ROUNDS").value_or("80"));
  const TemporaryFolder folder;
  const auto counted = run_ranks_collect(
      2,
      [&](comm::World& world) {
        const auto engine = make_saved_run(world);
        train_step(*engine, world.rank());
        engine->save_checkpoint(folder.path(), {.tag = "whole"});
        const std::string whole = content_of(*engine);
        FlipSequence sequence(folder.path(), "whole");
        std::map<std::string, FlipCounts> counts;  // by file
        for (int round = 0; round < rounds; ++round) {
          const Flip flip = sequence.next();  // the same on both ranks
          on_rank_0(world, [&] { flip.apply(); });
          FlipCounts& of_file = counts[flip.file.filename().string()];
          try {
            engine->load_checkpoint(folder.path());
            const bool same = content_of(*engine) == whole;
            ++(same ? of_file.harmless : of_file.missed);
            EXPECT_TRUE(same) << flip.file << ", bit " << flip.bit << " of byte " << flip.byte;
          } catch (const Error&) {
            ++of_file.detected;
          }
          on_rank_0(world, [&] { flip.apply(); });
        }
        engine->load_checkpoint(folder.path());
        EXPECT_EQ(content_of(*engine), whole);
        std::string table;
        int detected = 0;
        for (const auto& [file, of_file] : counts) {
          detected += of_file.detected;
          table += message("  ", file, ": ", of_file.detected, " detected, ", of_file.harmless, " harmless, ",
                           of_file.missed, " missed\n");
        }
        EXPECT_EQ(detected, rounds);  // the checksums of the manifest cover the padding too
        return table;
      },
      {.hang_limit = std::chrono::minutes(10)});
  std::printf("%d flipped bits, as rank 0 saw them:\n%s", rounds, counted.front().c_str());
}

}  // namespace
}  // namespace deepspeed::testing
