// Mutated and truncated archives each cause an error, without a crash and without using more memory than the
// file justifies.
#include <cstdio>
#include <fstream>
#include <iterator>
#include <map>
#include <random>
#include <string>

#include <ATen/ops/arange.h>

#include <gtest/gtest.h>

#include "deepspeed/base/error.h"
#include "deepspeed/checkpoint/archive/deferred_archive.h"
#include "deepspeed/checkpoint/archive/torch_archive.h"

#include "tests/checkpoint/archive/largest_allocation.h"
#include "tests/checkpoint/pickle/value_comparison.h"
#include "tests/places/places.h"
#include "tests/support/counting_allocator.h"
#include "tests/support/error_of.h"
#include "tests/support/temporary_folder.h"

namespace deepspeed::checkpoint {
namespace {

namespace fs = std::filesystem;
using namespace std::string_literals;

std::string content_of_file(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

/// Changes what a reader relies on: sizes, offsets, counts, names, the pickle, and the end.
class ArchiveMutator {
 public:
  explicit ArchiveMutator(std::string whole) : whole_(std::move(whole)) {
    for (const char* signature : {"PK\x01\x02", "PK\x03\x04", "PK\x05\x06", "PK\x06\x06", "PK\x06\x07"}) {
      for (size_t at = whole_.find(signature); at != std::string::npos; at = whole_.find(signature, at + 1))
        records_.push_back(at);
    }
  }

  std::string next() {
    std::string bytes = whole_;
    const uint64_t kind = random_() % 4;
    for (uint64_t change = 0; change <= random_() % 4; ++change) {
      const size_t at =
          kind == 0 ? random_() % bytes.size() : records_[random_() % records_.size()] + 4 + random_() % 44;
      if (at + 8 > bytes.size()) continue;
      constexpr uint64_t kTempting[] = {0, 1, 0xFF, 0xFFFF, 0x7FFFFFFF, 0xFFFFFFFF, 0xFFFFFFFFFFFFFFFF};
      const uint64_t number = kind == 1 ? random_() : kTempting[random_() % 7];
      for (size_t byte = 0; byte < (size_t(1) << (random_() % 4)); ++byte)
        bytes[at + byte] = char(number >> (8 * byte));
    }
    if (kind == 3) bytes.resize(random_() % bytes.size());
    return bytes;
  }

 private:
  std::string whole_;
  std::vector<size_t> records_;
  std::mt19937_64 random_{7};
};

/// Returns whether the file is refused; otherwise checks that it has the same content.
bool is_refused(const fs::path& path, const Value& whole, bool deferred) {
  try {
    if (deferred) {
      const DeferredArchive archive(path);
      EXPECT_TRUE(same(archive.load(archive.value()), whole));
    } else {
      EXPECT_TRUE(same(read_torch_archive(path), whole));
    }
    return false;
  } catch (const Error&) {
    return true;
  }
}

void mutate(const Value& whole, const fs::path& original, int rounds) {
  const testing::TemporaryFolder folder;
  const std::string bytes = content_of_file(original);
  ArchiveMutator mutator(bytes);
  int refused = 0;
  for (int round = 0; round < rounds; ++round) {
    const std::string mutated = mutator.next();
    std::ofstream(folder / "file.pt", std::ios::binary) << mutated;
    const testing::LargestAllocation largest;
    const testing::AllocationCounter tensors;
    for (const bool deferred : {false, true}) refused += is_refused(folder / "file.pt", whole, deferred);
    EXPECT_LT(largest.bytes(), 4 * bytes.size() + (1 << 20)) << "round " << round;
    EXPECT_LT(tensors.peak_bytes(), int64_t(4 * bytes.size()) + (1 << 20)) << "round " << round;
  }
  std::printf("%d mutations of %s, read in two ways: %d refused, %d the same values as before\n", rounds,
              original.filename().c_str(), refused, 2 * rounds - refused);
  EXPECT_GT(refused, rounds);  // of twice as many readings; fields that no reader needs may have any value
}

TEST(HostileArchive, IsRefusedWithinTheMemoryOfItsSize) {
  const testing::TemporaryFolder folder;
  Dict dict;
  dict.set("large", at::arange(40'000, at::kFloat));  // a DeferredArchive leaves it in the file
  dict.set("small", at::arange(7, at::kLong));
  dict.set("text", "abc");
  const Value value(std::move(dict));
  write_torch_archive(folder / "own.pt", value);
  mutate(value, folder / "own.pt", 150);
  const fs::path golden = testing::source_folder() / "tests/golden";
  for (const char* name :
       {"torch_archive/model.pt", "torch_archive/optimizer.pt", "torch_archive/namespace.pt"})
    mutate(read_torch_archive(golden / name), golden / name, 50);
}

// An interrupted copy leaves such files. Only the whole file is accepted.
TEST(HostileArchive, CutAnywhereIsRefused) {
  const testing::TemporaryFolder folder;
  const Value value(at::arange(40'000, at::kFloat));
  write_torch_archive(folder / "own.pt", value);
  const std::string bytes = content_of_file(folder / "own.pt");
  for (size_t cut = 1; cut < bytes.size(); cut = cut < 600 ? cut + 1 : cut * 11 / 10) {
    std::ofstream(folder / "file.pt", std::ios::binary) << bytes.substr(0, bytes.size() - cut);
    EXPECT_ERROR(CheckpointError, read_torch_archive(folder / "file.pt"),
                 "file.pt\" is not a whole zip archive", "it is torn")
        << cut << " bytes short";
    EXPECT_ERROR(CheckpointError, DeferredArchive(folder / "file.pt"), "file.pt\" is not a whole zip archive",
                 "it is torn")
        << cut << " bytes short";
  }
}

std::string repeated(const std::string& part, size_t bytes) {
  std::string text;
  while (text.size() < bytes) text += part;
  return text;
}

/// Writes a file of torch.save with this pickle.
void write_pickle(const fs::path& file, const std::string& operations) {
  ArchiveContent content;
  content.pickled = "\x80\x02" + operations + ".";
  write_archive_content(file, content);
}

// Python needs 64 bytes for an empty list. Repetition in a small file may need up to 64 MiB.
TEST(HostileArchive, OfManySmallObjectsTakesASmallMultipleOfItsSize) {
  const testing::TemporaryFolder folder;
  constexpr size_t kBytes = 2'000'000;
  const std::string name = "ca\nb\nq\x00"s;
  const std::map<std::string, std::string> bombs = {
      {"lists that are in nothing", repeated("]", kBytes)},
      {"lists in a tuple", "(" + repeated("]", kBytes) + "t"},
      {"dicts in a tuple", "(" + repeated("}", kBytes) + "t"},
      {"Nones in a tuple", "(" + repeated("N", kBytes) + "t"},
      {"numbers in a tuple", "(" + repeated("K\x01", kBytes) + "t"},
      {"marks", repeated("(", kBytes)},
      {"copies of the top", "(]" + repeated("2", kBytes) + "t"},
      {"memos", "]" + repeated("\x94", kBytes)},
      {"tuples in each other", ")" + repeated("\x85", kBytes)},
      {"lists in each other", repeated("](", kBytes)},
      {"names", "(" + name + repeated("h\x00"s, kBytes) + "t"},
      {"objects", "(" + name + repeated("h\x00)R"s, kBytes) + "t"},
      {"a text in many places",
       "(X\x10\x27\x00\x00"s + std::string(10'000, 'a') + "q\x00"s + repeated("h\x00"s, kBytes) + "t"},
      {"lists of the list before twice", [] {
         std::string text = "]q\x00"s;
         for (char at = 1; at < 60; ++at) text += "]q"s + at + "(h" + char(at - 1) + "h" + char(at - 1) + "e";
         return text;
       }()}};
  for (const auto& [what, operations] : bombs) {
    write_pickle(folder / "bomb.pt", operations);
    const testing::LargestAllocation memory;
    try {
      read_torch_archive(folder / "bomb.pt");
    } catch (const CheckpointError& error) {
      EXPECT_NE(std::string(error.what()).find("bomb.pt"), std::string::npos) << what;
    }
    EXPECT_LT(memory.peak_bytes(), (size_t{80} << 20) + 120 * operations.size()) << what;
  }
}

TEST(HostileArchive, IsRefusedWhereItsDepthIsReadNotWhereItEnds) {
  const testing::TemporaryFolder folder;
  for (const std::string& open : {"]"s, "("s, "]("s}) {
    write_pickle(folder / "bomb.pt", repeated(open, 1'000'000));
    EXPECT_ERROR(CheckpointError, read_torch_archive(folder / "bomb.pt"), "bomb.pt",
                 "nested deeper than 200 levels at byte ");
  }
  for (const std::string& length :
       {"\x8b\xff\xff\xff\x7f"s, "\x8d\xff\xff\xff\xff\xff\xff\xff\xff"s, "X\xff\xff\xff\xff"s}) {
    write_pickle(folder / "bomb.pt", length);
    EXPECT_ERROR(CheckpointError, read_torch_archive(folder / "bomb.pt"), "bomb.pt", "torn");
  }
}

}  // namespace
}  // namespace deepspeed::checkpoint
