// Torn, altered and hostile files each cause an error, never a crash or an endless read.
#include <cstring>
#include <fstream>
#include <iterator>

#include <ATen/ops/arange.h>
#include <ATen/ops/zeros.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "deepspeed/base/error.h"
#include "deepspeed/checkpoint/archive/torch_archive.h"
#include "deepspeed/checkpoint/pickle/unpickler.h"

#include "tests/checkpoint/pickle/value_comparison.h"
#include "tests/places/places.h"
#include "tests/support/error_of.h"
#include "tests/support/temporary_folder.h"

namespace deepspeed::checkpoint {
namespace {

std::string bytes_of(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

void write_bytes(const std::filesystem::path& path, const std::string& bytes) {
  std::ofstream(path, std::ios::binary) << bytes;
}

Value unpickle_alone(const std::string& bytes) {
  return unpickle(
      bytes, [](const std::string&, int64_t) -> at::Storage { throw CheckpointError("no storages here"); });
}

std::string golden(const std::string& name) {
  return (testing::source_folder() / "tests/golden/torch_archive/").string() + name;
}

/// Returns a fixed sequence of numbers from a linear congruential generator.
class Sequence {
 public:
  size_t next(size_t bound) {
    state_ = state_ * 6364136223846793005ull + 1442695040888963407ull;
    return size_t((state_ >> 33) % bound);
  }

 private:
  uint64_t state_ = 1;
};

TEST(AlteredArchive, AFlippedBitIsAnErrorOrChangesNothing) {
  const testing::TemporaryFolder folder;
  const Value value = read_torch_archive(golden("model.pt"));
  const std::string whole = bytes_of(golden("model.pt"));
  Sequence sequence;
  int errors = 0;
  for (int round = 0; round < 600; ++round) {
    std::string bytes = whole;
    bytes[sequence.next(bytes.size())] ^= char(1u << sequence.next(8));
    write_bytes(folder / "file.pt", bytes);
    try {
      EXPECT_TRUE(same(read_torch_archive(folder / "file.pt"), value)) << "round " << round;
    } catch (const CheckpointError&) {
      ++errors;
    }
  }
  EXPECT_GT(errors, 200);
}

TEST(AlteredArchive, EveryTruncationIsAnError) {
  const testing::TemporaryFolder folder;
  const std::string whole = bytes_of(golden("optimizer.pt"));
  for (size_t size = 0; size < whole.size(); size += 7) {
    write_bytes(folder / "file.pt", whole.substr(0, size));
    EXPECT_ERROR(CheckpointError, read_torch_archive(folder / "file.pt"),
                 "file.pt\" is not a whole zip archive", "it is torn")
        << size << " bytes";
  }
}

TEST(AlteredArchive, AlteredDataIsFoundByItsChecksum) {
  const testing::TemporaryFolder folder;
  write_torch_archive(folder / "file.pt", at::arange(1000, at::kFloat));
  std::string bytes = bytes_of(folder / "file.pt");
  const float number = 500;
  const std::string pattern(reinterpret_cast<const char*>(&number), sizeof(number));
  bytes[bytes.find(pattern)] ^= 1;
  write_bytes(folder / "file.pt", bytes);
  EXPECT_THAT([&] { read_torch_archive(folder / "file.pt"); },
              ::testing::ThrowsMessage<CheckpointError>(
                  ::testing::AllOf(::testing::HasSubstr("data/0"), ::testing::HasSubstr("checksum"))));
}

// Checksums reject mutations of the file; the pickle reader must cope without them.
TEST(AlteredPickle, AnyMutationIsReadOrRefused) {
  const std::string file = bytes_of(golden("model.pt"));
  const size_t begin = file.find("\x80\x02}");
  const std::string whole = file.substr(begin, file.find("PK\x07\x08", begin) - begin);
  const StorageLoader load = [](const std::string&, int64_t num_bytes) {
    if (num_bytes > 4096) throw CheckpointError("too large");
    return at::zeros({num_bytes}, at::kByte).storage();
  };
  EXPECT_EQ(unpickle(whole, load).as_dict().size(), 13u);
  Sequence sequence;
  int errors = 0;
  for (int round = 0; round < 3000; ++round) {
    std::string bytes = whole;
    for (size_t change = 0; change <= sequence.next(4); ++change) {
      bytes[sequence.next(bytes.size())] = char(sequence.next(256));
    }
    if (sequence.next(4) == 0) bytes.resize(sequence.next(bytes.size()));
    try {
      unpickle(bytes, load);
    } catch (const CheckpointError&) {
      ++errors;
    }
  }
  EXPECT_GT(errors, 1000);
}

TEST(AlteredPickle, ACallOfAnythingUnknownIsDataAndNamedWhereItIsUsed) {
  using namespace std::string_literals;
  for (const char* name : {"os\nsystem", "builtins\neval", "numpy._core.multiarray\nscalar"}) {
    const std::string bytes =
        "\x80\x02"
        "c"s +
        name + "\nX\x04\x00\x00\x00true\x85R."s;
    std::string dotted(name);
    dotted[dotted.find('\n')] = '.';
    const Value value = unpickle_alone(bytes);
    EXPECT_EQ(value.kind(), dotted);
    EXPECT_EQ(value.get_if<Object>()->arguments[0].as_string(), "true");
    EXPECT_ERROR(CheckpointError, value.as_tensor(), "a tensor was expected", dotted);
  }
  EXPECT_EQ(unpickle_alone("\x80\x04\x8c\x02os\x8c\x06system\x93\x8c\x04true\x85R."s).kind(), "os.system");
}

// Opcodes: ) is an empty tuple, R calls, b sets a state, 0 drops, \x92 is __new__ with keywords.
TEST(AlteredPickle, ObjectsThatPythonWouldNotWriteAreRefused) {
  using namespace std::string_literals;
  const std::string made = "\x80\x02"s + "cm\nC\n)R";
  EXPECT_EQ(unpickle_alone(made + ".").kind(), "m.C");
  EXPECT_ERROR(CheckpointError, unpickle_alone("\x80\x02N)R."s), "a call that is not of a name or an object");
  EXPECT_ERROR(CheckpointError, unpickle_alone("\x80\x02"s + "cm\nC\n]R."), "with a tuple of arguments");
  EXPECT_ERROR(CheckpointError, unpickle_alone("\x80\x02"s + "cm\nC\n)N\x92."),
               "keywords that are not a dict");
  EXPECT_ERROR(CheckpointError, unpickle_alone(made + "NbNb."), "given a state twice");
  EXPECT_ERROR(CheckpointError, unpickle_alone("\x80\x02NNb."s), "no object is given a state");
  // This is how pickle calls a state_setter: its result is dropped.
  EXPECT_ERROR(CheckpointError, unpickle_alone("\x80\x02N"s + "cm\nf\n)R0."),
               "calls something for its effect");
  EXPECT_ERROR(CheckpointError, unpickle_alone(made + "q\0h\0b."s), "an object holds itself");
  EXPECT_ERROR(CheckpointError, unpickle_alone("\x80\x02"s + "cm\n" + std::string(2000, 'n') + "\n."),
               "longer than 1000 bytes");
  EXPECT_ERROR(CheckpointError, unpickle_alone("\x80\x02"s + "cm\n\n."),
               "the name of a class or a function is empty");
  // \x8b announces an integer of 2^31 - 1 bytes, none of which follow.
  EXPECT_ERROR(CheckpointError, unpickle_alone("\x80\x02\x8b\xff\xff\xff\x7f\x01."s), "the pickle is torn");
}

// A tensor of an unknown class or layout must not be taken for a plain tensor.
TEST(AlteredPickle, TensorsOfUnknownKindsAreRefusedByName) {
  using namespace std::string_literals;
  const StorageLoader load = [](const std::string&, int64_t num_bytes) {
    return at::zeros({num_bytes}, at::kByte).storage();
  };
  const auto text = [](const std::string& word) { return "X"s + char(word.size()) + "\0\0\0"s + word; };
  const std::string storage =
      "("s + text("storage") + "ctorch\nFloatStorage\n" + text("0") + text("cpu") + "K\x04tQ";
  const std::string arguments = "("s + storage + "K\0"s + "K\x04\x85K\x01\x85\x89Nt";
  EXPECT_ERROR(CheckpointError,
               unpickle("\x80\x02"s + "ctorch._utils\n_rebuild_qtensor\n" + arguments + "R.", load),
               "'torch._utils._rebuild_qtensor', a kind of tensor that cannot be read", "plain tensor");
  const auto of_type = [&](const std::string& type) {
    return "\x80\x02"s + "ctorch._tensor\n_rebuild_from_type_v2\n(ctorch._utils\n_rebuild_tensor_v2\nc" +
           type + "\n" + arguments + "NtR.";
  };
  EXPECT_EQ(unpickle(of_type("torch\nTensor"), load).as_tensor().numel(), 4);
  EXPECT_ERROR(CheckpointError, unpickle(of_type("mine\nTensor"), load), "'mine.Tensor', a kind of tensor");
}

// Opcodes: c names a class, ( ... t makes a tuple, Q loads a storage, R calls, K is a number below 256.
TEST(AlteredPickle, ArgumentsThatFitNoTensorAreRefused) {
  using namespace std::string_literals;
  const StorageLoader load = [](const std::string&, int64_t num_bytes) {
    return at::zeros({num_bytes}, at::kByte).storage();
  };
  const auto text = [](const std::string& word) { return "X"s + char(word.size()) + "\0\0\0"s + word; };
  const auto storage = [&](const std::string& type, const std::string& numel) {
    return "("s + text("storage") + "ctorch\n" + type + "\n" + text("0") + text("cpu") + numel + "tQ";
  };
  const auto tensor = [&](const std::string& from, const std::string& sizes) {
    return "\x80\x02"s + "ctorch._utils\n_rebuild_tensor_v2\n(" + from + "K\0"s + sizes + "K\x01\x85\x89Nt" +
           "R.";
  };
  const std::string floats = storage("FloatStorage", "K\x04");
  EXPECT_EQ(unpickle(tensor(floats, "K\x04\x85"), load).as_tensor().numel(), 4);
  EXPECT_ERROR(CheckpointError, unpickle(tensor(floats, "}"), load), "a tensor's sizes are not a tuple");
  EXPECT_ERROR(CheckpointError, unpickle(tensor(storage("Tensor", "K\x04"), "K\x04\x85"), load),
               "'Tensor' is not a storage");
  EXPECT_ERROR(CheckpointError,
               unpickle(tensor(storage("FloatStorage", "J\xff\xff\xff\xff"), "K\x04\x85"), load),
               "a storage of -1 elements");
  EXPECT_ERROR(CheckpointError, unpickle("\x80\x02"s + floats + ".", load), "a bare storage stands where");
}

TEST(AlteredPickle, KeysOfEveryPlainKindAreReadAndOthersRefused) {
  using namespace std::string_literals;
  // } is an empty dict, N None, \x88 True, G a double, ] an empty list, u sets the items after (.
  const Value value = unpickle_alone("\x80\x02}(NK\x01\x88K\x02G\x3f\xe0\0\0\0\0\0\0K\x03NK\x04u."s);
  const Dict& dict = value.as_dict();
  ASSERT_EQ(dict.size(), 3U);
  EXPECT_TRUE(dict.items()[0].first.is_none());
  EXPECT_EQ(dict.items()[0].second.as_int(), 4) << "the later value of a key stays";
  EXPECT_TRUE(dict.items()[1].first.as_bool());
  EXPECT_EQ(dict.items()[2].first.as_double(), 0.5);
  EXPECT_ERROR(CheckpointError, unpickle_alone("\x80\x02}(]K\x01u."s), "a dict has a list as a key");
  EXPECT_ERROR(CheckpointError, unpickle_alone("\x80\x02}(]\x85K\x01u."s), "a dict has a list as a key");
  const Value tuples = unpickle_alone("\x80\x02}(K\x01K\x02\x86K\x05K\x01K\x02\x86K\x06K\x01\x85K\x07u."s);
  ASSERT_EQ(tuples.as_dict().size(), 2U);
  EXPECT_EQ(tuples.as_dict().items()[0].second.as_int(), 6) << "equal tuples are one key";
}

TEST(AlteredPickle, EndlessContentIsRefused) {
  using namespace std::string_literals;
  // A list that contains itself.
  EXPECT_ERROR(CheckpointError,
               unpickle_alone("\x80\x02]q\x00h\x00"
                              "a."s),
               "a list holds itself", "nested deeper than 200 levels");
  // Each list contains the previous one twice: 2^60 items from a few hundred bytes.
  std::string doubling = "\x80\x02]q\x00"s;
  for (int level = 0; level < 60; ++level) {
    doubling += "0]("s + "h" + char(level) + "h" + char(level) + "eq" + char(level + 1);
  }
  EXPECT_ERROR(CheckpointError, unpickle_alone(doubling + "."), "repeats its content endlessly");
  // One string of 1 MB becomes bytes in a thousand calls; one tuple becomes two thousand sets.
  std::string calls = "\x80\x02"s + "c_codecs\nencode\nq\0X\0\0\x10\0"s + std::string(1 << 20, 'x') +
                      "X\x06\0\0\0latin1\x86q\x01"s;
  for (int call = 0; call < 1000; ++call) calls += "h\0h\x01R"s;
  EXPECT_ERROR(CheckpointError, unpickle_alone(calls + "."), "repeats its content endlessly");
  std::string sets = "\x80\x02"s + "c__builtin__\nset\nq\0("s + std::string(1 << 14, 'N') + "t\x85q\x01"s;
  for (int call = 0; call < 2000; ++call) sets += "h\0h\x01R"s;
  EXPECT_ERROR(CheckpointError, unpickle_alone(sets + "."), "repeats its content endlessly");
  // A thousand objects share their arguments, and each would hold them as values.
  std::string objects = "\x80\x02"s + "cm\nC\nq\0("s + std::string(1 << 14, 'N') + "tq\x01]("s;
  for (int call = 0; call < 1000; ++call) objects += "h\0h\x01R"s;
  EXPECT_ERROR(CheckpointError, unpickle_alone(objects + "e."), "repeats its content endlessly");
  EXPECT_ERROR(CheckpointError,
               unpickle_alone("\x80\x02" + std::string(100000, ']') + std::string(99999, 'a') + "."),
               "nested deeper than 200 levels");
}

TEST(GoldenArchive, ReadsWhatTorchWrites) {
  const Value value = read_torch_archive(golden("model.pt"));
  const Dict& file = value.as_dict();
  const Dict& module = file.at("module").as_dict();
  EXPECT_TRUE(module.ordered());
  const at::Tensor weight = at::arange(12, at::kFloat).view({3, 4});
  EXPECT_TRUE(at::equal(module.at("wte").as_tensor(), weight));
  EXPECT_TRUE(at::equal(module.at("transposed").as_tensor(), weight.t()));
  EXPECT_TRUE(at::equal(module.at("row").as_tensor(), weight[1]));
  EXPECT_EQ(module.at("wte").as_tensor().storage().data(), module.at("lm_head").as_tensor().storage().data());
  EXPECT_EQ(module.at("bf16").as_tensor().scalar_type(), at::kBFloat16);
  EXPECT_EQ(module.at("int64").as_tensor()[1].item<int64_t>(), -(int64_t{1} << 40));
  EXPECT_EQ(module.at("zero_d").as_double(), 2.5);
  EXPECT_EQ(module.at("empty").as_tensor().sizes(), at::IntArrayRef({0, 3}));
  EXPECT_EQ(module.at("uint16").as_tensor().scalar_type(), at::kUInt16);
  EXPECT_EQ(file.at("size").as_size(), (std::vector<int64_t>{3, 4}));
  EXPECT_EQ(file.at("numbers").as_sequence()[4].as_int(), int64_t{1} << 62);
  EXPECT_TRUE(same(file.at("bytes"), Value::bytes({0, 255})));
  EXPECT_EQ(file.at("by_number").as_dict().find(int64_t{0})->as_dict().at("step").as_int(), 3);
  EXPECT_EQ(file.at("parameter").as_tensor().numel(), 2);
  EXPECT_EQ(read_torch_archive(golden("protocol4.pt")).as_dict().at("numbers").as_sequence()[1].as_int(), 2);
  EXPECT_EQ(read_torch_archive(golden("namespace.pt")).as_dict().at("namespace").kind(),
            "argparse.Namespace");
}

}  // namespace
}  // namespace deepspeed::checkpoint
