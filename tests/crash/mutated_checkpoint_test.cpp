// Files of a checkpoint change places, come from other saves, are cut, altered, renamed or gone, and there is
// no manifest: loading says so, by the name of a file, or what it loads is what was saved. CRASH_ROUNDS=300
// makes more of them than a usual run of the tests.
#include <algorithm>
#include <cstdio>
#include <fstream>
#include <functional>
#include <map>
#include <optional>
#include <random>
#include <vector>

#include <gtest/gtest.h>
#include <sys/stat.h>

#include "deepspeed/base/env.h"
#include "deepspeed/base/log.h"
#include "deepspeed/checkpoint/archive/torch_archive.h"
#include "deepspeed/checkpoint/convert/universal.h"
#include "deepspeed/checkpoint/convert/zero_to_fp32.h"

#include "tests/checkpoint/pickle/value_comparison.h"
#include "tests/crash/saved_run.h"
#include "tests/support/run_ranks.h"
#include "tests/support/temporary_folder.h"

namespace deepspeed::testing {
namespace {

namespace fs = std::filesystem;

/// Changes the files of a tag's folder, of which other saves have files of the same names.
class TagMutator {
 public:
  TagMutator(fs::path tag, std::vector<fs::path> others, uint64_t seed)
      : tag_(std::move(tag)), others_(std::move(others)), random_(seed) {
    for (const std::string& name : names_in(tag_)) names_.push_back(name);
  }

  /// Makes one change; says which.
  std::string change() {
    const std::string name = any(names_), other = any(names_);
    const fs::path file = tag_ / name;
    switch (random_() % 12) {
      case 0:
        swap(file, tag_ / other);
        return message(name, " and ", other, " have changed places");
      case 1:
        swap_ranks();
        return "two ranks' files have changed places";
      case 2:
        return take(name, any(others_));
      case 3:
        return take_all("optim_states", any(others_));
      case 4:
        return take_all("model_states", any(others_));
      case 5:
        fs::resize_file(file, random_() % fs::file_size(file));
        return name + " is cut";
      case 6:
        return alter(file, 1);
      case 7:
        return alter(file, 1 + random_() % 4096);
      case 8:
        return swap_blocks(file);
      case 9:
        fs::remove(file);
        return name + " is gone";
      case 10:
        fs::remove(file);
        EXPECT_EQ(::mkfifo(file.c_str(), 0600), 0);
        return name + " is a FIFO";
      default:
        if (name == other) return "nothing has changed";
        fs::copy_file(file, tag_ / other, fs::copy_options::overwrite_existing);
        return message(other, " is a copy of ", name);
    }
  }

 private:
  template <class T>
  const T& any(const std::vector<T>& items) {
    return items[random_() % items.size()];
  }
  static void swap(const fs::path& one, const fs::path& other) {
    const fs::path aside = one.string() + ".aside";
    fs::rename(one, aside);
    if (one != other) fs::rename(other, one);
    fs::rename(aside, other);
  }
  void swap_ranks() {
    std::vector<std::string> of_rank_0;
    for (const std::string& name : names_) {
      if (fs::exists(tag_ / of_rank_1(name)) && of_rank_1(name) != name) of_rank_0.push_back(name);
    }
    const std::string& name = any(of_rank_0);
    swap(tag_ / name, tag_ / of_rank_1(name));
  }
  static std::string of_rank_1(std::string name) {
    const size_t at = name.find("rank_0_mp");
    return at == std::string::npos ? name : name.replace(at, 6, "rank_1");
  }
  std::string take(const std::string& name, const fs::path& from) {
    if (!fs::exists(from / name)) return "nothing has changed";
    fs::copy_file(from / name, tag_ / name, fs::copy_options::overwrite_existing);
    return message(name, " is that of ", from);
  }
  std::string take_all(const std::string& kind, const fs::path& from) {
    std::string what;
    for (const std::string& name : names_) {
      if (name.find(kind) != std::string::npos) what += take(name, from) + "; ";
    }
    return what;
  }
  std::string alter(const fs::path& file, uint64_t count) {
    std::fstream stream(file, std::ios::in | std::ios::out | std::ios::binary);
    const uint64_t size = fs::file_size(file), begin = random_() % size;
    stream.seekp(int64_t(begin));
    for (uint64_t done = 0; done < std::min(count, size - begin); ++done) stream.put(char(random_()));
    return message(file.filename(), " has other bytes from ", begin, ", ", count);
  }
  std::string swap_blocks(const fs::path& file) {
    std::string bytes = content(file);
    const size_t size = std::min<size_t>(4096, bytes.size() / 4);
    const size_t one = random_() % (bytes.size() / 2 - size + 1);
    const size_t other = bytes.size() / 2 + random_() % (bytes.size() / 2 - size + 1);
    std::swap_ranges(bytes.begin() + int64_t(one), bytes.begin() + int64_t(one + size),
                     bytes.begin() + int64_t(other));
    std::ofstream(file, std::ios::binary) << bytes;
    return message("blocks of ", file.filename(), " have changed places");
  }
  static std::string content(const fs::path& file) {
    std::ifstream stream(file, std::ios::binary);
    return {std::istreambuf_iterator<char>(stream), {}};
  }

  fs::path tag_;
  std::vector<fs::path> others_;
  std::mt19937_64 random_;
  std::vector<std::string> names_;
};

void copy_tag(const fs::path& from, const fs::path& to) {
  fs::remove_all(to);
  fs::create_directories(to);
  fs::copy(from, to, fs::copy_options::recursive);
  fs::remove(to / "manifest.json");
}

bool names_a_file(const std::string& error, const fs::path& dir) {
  return error.find(dir.string()) != std::string::npos || error.find(".pt") != std::string::npos;
}

/// Names of weights, and of states in a universal checkpoint, and their values.
using Content = std::map<std::string, checkpoint::Value>;

Content fp32_of(const fs::path& dir) {
  Content content;
  for (const auto& [name, tensor] : checkpoint::get_fp32_state_dict_from_zero_checkpoint(dir, "tag", false))
    content.emplace(name, tensor);
  return content;
}

Content universal_of(const fs::path& dir) {
  checkpoint::convert_to_universal(dir / "tag", dir / "universal", {.num_workers = 1});
  Content content;
  for (const auto& entry : fs::recursive_directory_iterator(dir / "universal" / "zero")) {
    if (entry.is_regular_file())
      content.emplace(entry.path().string(), checkpoint::read_torch_archive(entry.path()));
  }
  return content;
}

bool same_content(const Content& one, const Content& other) {
  return std::ranges::equal(one, other, [](const auto& left, const auto& right) {
    return left.first == right.first && same(left.second, right.second);
  });
}

struct Counts {
  int refused = 0, harmless = 0, wrong = 0;

  void count(const std::string& what, const fs::path& dir, const std::function<bool()>& loads_right) {
    try {
      const bool is_right = loads_right();
      ++(is_right ? harmless : wrong);
      EXPECT_TRUE(is_right) << what;
    } catch (const Error& error) {
      ++refused;
      EXPECT_TRUE(names_a_file(error.what(), dir)) << what << ": " << error.what();
    }
  }
};

/// Saves a run that began with other data under <dir>/<name>/tag, and its step before under <name>/before.
template <class Engine>
void save_run(Engine& engine, const fs::path& dir, const std::string& name, int64_t first) {
  train_step(engine, first);
  engine.save_checkpoint(dir / name, {.tag = "before"});
  train_step(engine, first + 50);
  engine.save_checkpoint(dir / name, {.tag = "tag"});
}

class MutatedCheckpoint : public ::testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Stages, MutatedCheckpoint, ::testing::Values(0, 1, 2, 3));

TEST_P(MutatedCheckpoint, IsRefusedByTheNameOfAFileOrLoadsWhatWasSaved) {
  const int rounds = std::max(1, std::stoi(env::get("CRASH_ROUNDS").value_or("48")) / 4);
  const TemporaryFolder folder;
  const fs::path work = folder / "work";
  run_ranks(1, [&](comm::World& world) {
    const auto engine = make_saved_run(world, Json::object(), GetParam());
    save_run(*engine, folder.path(), "alone", 700);
  });
  const auto reports = run_ranks_collect(
      2,
      [&](comm::World& world) {
        const auto other = make_saved_run(world, Json::object(), GetParam());
        save_run(*other, folder.path(), "other", 300 + world.rank());
        const auto engine = make_saved_run(world, Json::object(), GetParam());
        save_run(*engine, folder.path(), "own", world.rank());
        const std::string whole = content_of(*engine);
        const fs::path saved = folder / "own/tag";
        Content weights, states;
        on_rank_0(world, [&] {
          copy_tag(saved, work / "tag");
          weights = fp32_of(work);
          states = universal_of(work);
        });
        engine->load_checkpoint(work, {.tag = "tag"});
        EXPECT_EQ(content_of(*engine), whole);
        std::optional<TagMutator> mutator;
        if (world.rank() == 0) {
          mutator.emplace(
              work / "tag",
              std::vector<fs::path>{folder / "own/before", folder / "other/tag", folder / "other/before",
                                    folder / "alone/tag", folder / "own/before", folder / "other/tag"},
              uint64_t(GetParam()));
        }
        Counts engine_counts, fp32_counts, universal_counts;
        for (int round = 0; round < rounds; ++round) {
          other->load_checkpoint(folder / "other", {.tag = "before"});
          std::string what;
          on_rank_0(world, [&] {
            copy_tag(saved, work / "tag");
            what = message("round ", round, ": ", mutator->change());
          });
          what = world.group().all_gather_text(what).front();
          engine_counts.count(what, work, [&] {
            other->load_checkpoint(work, {.tag = "tag"});
            return content_of(*other) == whole;
          });
          on_rank_0(world, [&] {
            fp32_counts.count("fp32, " + what, work, [&] { return same_content(fp32_of(work), weights); });
            universal_counts.count("universal, " + what, work,
                                   [&] { return same_content(universal_of(work), states); });
          });
        }
        std::string report;
        for (const auto& [name, counts] :
             {std::pair("engine", engine_counts), {"fp32", fp32_counts}, {"universal", universal_counts}}) {
          report += message("  ", name, ": ", counts.refused, " refused, ", counts.harmless,
                            " loaded what was saved, ", counts.wrong, " loaded something else\n");
        }
        return report;
      },
      {.hang_limit = std::chrono::minutes(10)});
  std::printf("%d mutations without a manifest at stage %d, as rank 0 saw them:\n%s", rounds, GetParam(),
              reports.front().c_str());
}

}  // namespace
}  // namespace deepspeed::testing
