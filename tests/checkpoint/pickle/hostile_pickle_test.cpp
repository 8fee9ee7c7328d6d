// Malicious pickles are read or refused within a small multiple of their size, and in a time that grows with
// it. DEEPSPEED_TEST_FUZZ_SECONDS=300 makes the last test run that long.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <fstream>
#include <iterator>
#include <map>
#include <optional>
#include <random>
#include <sstream>
#include <string>
#include <vector>

#include <ATen/ops/zeros.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include "deepspeed/base/env.h"
#include "deepspeed/base/error.h"
#include "deepspeed/checkpoint/pickle/pickler.h"
#include "deepspeed/checkpoint/pickle/storage_plan.h"
#include "deepspeed/checkpoint/pickle/unpickler.h"

#include "tests/checkpoint/archive/largest_allocation.h"
#include "tests/places/places.h"
#include "tests/support/run_ranks.h"
#include "tests/support/sanitizer.h"

namespace deepspeed::checkpoint {
namespace {

using namespace std::string_literals;

/// Provides the storages of one file, with all bytes 0.
class ZeroStorages {
 public:
  at::Storage operator()(const std::string& key, int64_t num_bytes) {
    if (num_bytes > 4096) throw CheckpointError("too large");
    const auto [found, is_new] = storages_.try_emplace({key, num_bytes});
    if (is_new) found->second = at::zeros({num_bytes}, at::kByte).storage();
    return found->second;
  }

 private:
  std::map<std::pair<std::string, int64_t>, at::Storage> storages_;
};

Value read_pickle(const std::string& bytes) { return unpickle(bytes, ZeroStorages()); }

std::string times(const std::string& part, size_t count) {
  std::string text;
  text.reserve(part.size() * count);
  for (size_t i = 0; i < count; ++i) text += part;
  return text;
}

std::string short_text(const std::string& word) { return "X"s + char(word.size()) + "\0\0\0"s + word; }

/// Returns the arguments of _rebuild_tensor_v2 for 64 dimensions of one element.
std::string arguments_of_tensor() {
  const std::string ones = "(" + times("K\x01", 64) + "t";
  return "((" + short_text("storage") + "ctorch\nFloatStorage\n" + short_text("0") + short_text("cpu") +
         "K\x04tQK\0"s + ones + ones + "\x89Nt";
}

std::string far_memos(size_t count) {
  std::string text = "]";
  for (size_t i = 0; i < count; ++i) {
    const auto number = uint32_t(0xFFFFFFFF - i);
    text += "r"s + char(number) + char(number >> 8) + char(number >> 16) + char(number >> 24);
  }
  return text;
}

constexpr size_t kBombBytes = 3'000'000;

/// Returns pickles without their header and end. Operations: ] is an empty list, ) a tuple, } a dict, ( a
/// mark, t a tuple from the mark on, \x85 a tuple of one value, 2 a copy of the top, q and h store and recall
/// it, c names, R calls.
std::map<std::string, std::string> bombs() {
  const std::string name = "ca\nb\nq\x00"s;
  const std::string tensor = "ctorch._utils\n_rebuild_tensor_v2\nq\x00"s + arguments_of_tensor() + "q\x01"s;
  return {
      {"lists that are in nothing", times("]", kBombBytes)},
      {"marks", times("(", kBombBytes)},
      {"lists in each other", times("](", kBombBytes / 2)},
      {"tuples in each other", ")" + times("\x85", kBombBytes)},
      {"lists in a tuple", "(" + times("]", kBombBytes) + "t"},
      {"dicts in a tuple", "(" + times("}", kBombBytes) + "t"},
      {"copies of the top", "(]" + times("2", kBombBytes) + "t"},
      {"memos in turn", "]" + times("\x94", kBombBytes)},
      {"memos far away", far_memos(kBombBytes / 5)},
      {"empty texts in a tuple", "(" + times("\x8c\x00"s, kBombBytes / 2) + "t"},
      {"keys of a dict", "}(" + times("J\x01\x02\x03\x04N"s, kBombBytes / 6) + "u"},
      {"a key in many tuples, often", "](X\xc0\xc6\x2d\0"s + std::string(kBombBytes, 'k') +
                                          times("\x85", 190) + "q\x00"s + "0" + times("}h\x00Ns"s, 84) + "e"},
      {"objects", "(" + name + times("h\x00)R"s, kBombBytes / 4) + "t"},
      {"objects of the same many arguments",
       name + "(" + times("N", kBombBytes / 2) + "tq\x01]("s + times("h\x00h\x01R"s, kBombBytes / 10) + "e"},
      {"tensors of many dimensions", tensor + "("s + times("h\x00h\x01R"s, kBombBytes / 5) + "t"},
      {"storages", tensor + "("s + "(" + short_text("storage") + "ctorch\nFloatStorage\n" + short_text("0") +
                       short_text("cpu") + "K\x04tq\x02"s + times("h\x02Q"s, kBombBytes / 3) + "t"},
      {"a long number", "\x8b\xc0\xc6\x2d\x00"s + std::string(kBombBytes, '\x7f')},
      {"a long name",
       "c" + std::string(kBombBytes / 2, 'a') + "\n" + std::string(kBombBytes / 2, 'b') + "\n"},
      {"an endless text", "\x8d\xff\xff\xff\xff\xff\xff\xff\xff"s + std::string(kBombBytes, 'a')},
      {"endless bytes", "\x8e\xff\xff\xff\xff\xff\xff\xff\x7f"s + std::string(kBombBytes, 'a')},
      {"an endless number", "\x8b\xff\xff\xff\x7f"s + std::string(kBombBytes, 'a')},
      {"an endless frame", "\x95\xff\xff\xff\xff\xff\xff\xff\xff"s + times("]0", kBombBytes / 2)},
  };
}

/// Limits what this process may use from here on. It needs a separate process.
void limit_this_process(uint64_t bytes, uint64_t seconds) {
  std::ifstream status("/proc/self/status");
  uint64_t data = 0;
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with("VmData:")) data = 1024 * std::stoull(line.substr(7));
  }
  const rlimit memory{data + bytes, data + bytes}, time{seconds, seconds};
  ASSERT_EQ(::setrlimit(RLIMIT_DATA, &memory), 0);
  ASSERT_EQ(::setrlimit(RLIMIT_CPU, &time), 0);
}

// A list takes 64 bytes in Python and one byte in the file.
TEST(HostilePickle, TakesASmallMultipleOfItsSizeAndOfItsTime) {
  if (testing::has_address_sanitizer()) GTEST_SKIP() << "AddressSanitizer's own memory counts";
  for (const auto& [what, operations] : bombs()) {
    const std::string bytes = "\x80\x04" + operations + ".";
    const auto outcome =
        testing::fork_ranks(1,
                            [&](int) -> std::string {
                              limit_this_process((uint64_t{96} << 20) + 80 * bytes.size(), 60);
                              const testing::LargestAllocation memory;
                              try {
                                read_pickle(bytes);
                              } catch (const CheckpointError&) {
                              }
                              return std::to_string(memory.peak_bytes());
                            },
                            {.hang_limit = std::chrono::minutes(10)});
    EXPECT_TRUE(outcome[0].ok()) << what << ": signal " << outcome[0].signal << " "
                                 << ::testing::PrintToString(outcome[0].failures);
    std::printf("%s: %zu bytes, at most %s of memory\n", what.c_str(), bytes.size(),
                outcome[0].value.c_str());
  }
}

std::vector<std::string> parts_of(const std::string& text) {
  std::vector<std::string> parts;
  std::istringstream stream(text);
  for (std::string part; std::getline(stream, part, '|');) parts.push_back(part);
  return parts;
}

/// Makes random pickles from operations or from pickles written by torch.
class PickleMaker {
 public:
  explicit PickleMaker(std::vector<std::string> written) : written_(std::move(written)) {}

  std::string next() {
    if (below(3) == 0) return "\x80"s + char(2 + below(4)) + operations(1 + below(300)) + ".";
    std::string bytes = written_[below(written_.size())];
    for (size_t change = 0; change <= below(6); ++change) alter(bytes);
    return bytes;
  }

 private:
  size_t below(size_t bound) { return random_() % bound; }

  /// Returns operations that mostly find what they need on the stack.
  std::string operations(size_t count) {
    // Single-byte operations, often ones that take little from the stack, and longer ones.
    static const std::string kSingle =
        "((()]}\x8fN\x88\x89"
        "012abdelstu\x85\x86\x87\x90\x91\x81\x92\x93RRQ\x94\x94";
    static const std::vector<std::string> kLonger = parts_of(
        "K\x05|M\xff\xff|J\xff\xff\xff\xff|\x8a\x01\xff|\x8a\x09"
        "123456789|\x8c\x01k|\x8c\x06latin1|C\x02zz|"
        "\x96\x01\0\0\0\0\0\0\0b|G\x3f\xf0\0\0\0\0\0\0|h\0|h\x01|h\x02|h\x03|j\x01\0\0\0|q\x02|r\0\1\0\0|"
        "cm\nC\n|ctorch\nSize\n|ctorch\nfloat32\n|ctorch\nFloatStorage\n|c_codecs\nencode\n|"
        "ctorch._utils\n_rebuild_tensor_v2\n|ctorch._utils\n_rebuild_parameter\n|"
        "ctorch._tensor\n_rebuild_from_type_v2\n|ccollections\nOrderedDict\n|cbuiltins\nset\n|"
        "cbuiltins\nfrozenset\n|cbuiltins\nbytearray\n|cbuiltins\ncomplex\n|cbuiltins\ngetattr\n|"
        "c__builtin__\nbytes\n|"s +
        arguments_of_tensor());
    std::string text;
    for (size_t i = 0; i < count; ++i) {
      const size_t part = below(kSingle.size() + kLonger.size());
      text += part < kSingle.size() ? std::string(1, kSingle[part]) : kLonger[part - kSingle.size()];
    }
    return text;
  }

  void alter(std::string& bytes) {
    const size_t at = 2 + below(bytes.size() - 2);
    switch (below(5)) {
      case 0:
        bytes[at] = char(below(256));
        break;
      case 1:
        bytes.erase(at, 1 + below(8));
        break;
      case 2:
        bytes.insert(at, operations(1 + below(3)));
        break;
      case 3:  // a part is repeated
        bytes.insert(at, bytes.substr(2 + below(bytes.size() - 2), below(60)));
        break;
      default: {  // the end is replaced by another's
        const std::string& other = written_[below(written_.size())];
        bytes = bytes.substr(0, at) + other.substr(2 + below(other.size() - 2));
      }
    }
    while (bytes.size() < 4) bytes += ".";
  }

  std::vector<std::string> written_;
  std::mt19937_64 random_{11};
};

std::string pickle_of_file(const std::string& name) {
  const auto path = testing::source_folder() / "tests/golden/torch_archive" / name;
  std::ifstream file(path, std::ios::binary);
  const std::string whole{std::istreambuf_iterator<char>(file), {}};
  const size_t begin = std::min(whole.find("\x80\x02"), whole.find("\x80\x04"));
  return whole.substr(begin, whole.find("PK\x07\x08", begin) - begin);
}

/// Pickles the value again. Returns nothing if that is refused (text that is not UTF-8).
std::optional<std::string> written_again(const Value& value) {
  try {
    return pickle(value, StoragePlan(value));
  } catch (const UsageError&) {
    return std::nullopt;
  }
}

TEST(HostilePickle, MadeAtRandomIsReadOrRefusedAndWhatIsReadCanBeWritten) {
  const auto seconds = env::get_int("DEEPSPEED_TEST_FUZZ_SECONDS").value_or(0);
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(seconds);
  PickleMaker maker({pickle_of_file("model.pt"), pickle_of_file("optimizer.pt"),
                     pickle_of_file("namespace.pt"), pickle_of_file("protocol4.pt")});
  int rounds = 0, read = 0, written = 0;
  for (; rounds < 20'000 || std::chrono::steady_clock::now() < end; ++rounds) {
    const std::string bytes = maker.next();
    const testing::LargestAllocation memory;
    try {
      const Value value = read_pickle(bytes);
      ++read;
      // The pickle is written in protocol 2, which has older names of Python's modules. A value may contain
      // such a name unchanged.
      const auto first = written_again(value);
      const auto second = first ? written_again(read_pickle(*first)) : std::nullopt;
      if (first) {
        ++written;
        ASSERT_TRUE(second) << "round " << rounds;
        EXPECT_EQ(written_again(read_pickle(*second)), second) << "round " << rounds;
      }
    } catch (const CheckpointError&) {
    }
    ASSERT_LT(memory.peak_bytes(), (size_t{80} << 20) + 120 * bytes.size()) << "round " << rounds;
    if (HasFailure()) break;
  }
  std::printf("%d pickles: %d read, %d of these written again\n", rounds, read, written);
  EXPECT_GT(read, rounds / 100);
  EXPECT_GT(written, rounds / 200);
}

}  // namespace
}  // namespace deepspeed::checkpoint
