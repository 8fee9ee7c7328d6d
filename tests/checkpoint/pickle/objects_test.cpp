// Python's objects are kept as data. After being read, written and read by Python again, they are equal.
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

#include <ATen/ops/arange.h>

#include <gtest/gtest.h>
#include <unistd.h>

#include "deepspeed/base/env.h"
#include "deepspeed/base/error.h"
#include "deepspeed/checkpoint/archive/deferred_archive.h"
#include "deepspeed/checkpoint/archive/torch_archive.h"

#include "tests/checkpoint/pickle/value_comparison.h"
#include "tests/places/places.h"
#include "tests/support/error_of.h"
#include "tests/support/temporary_folder.h"

namespace deepspeed::checkpoint {
namespace {

Value written_and_read(const Value& value) {
  const testing::TemporaryFolder folder;
  write_torch_archive(folder / "file.pt", value);
  return read_torch_archive(folder / "file.pt");
}

std::shared_ptr<Value> part(Value value) { return std::make_shared<Value>(std::move(value)); }

const Object& object_at(const Dict& dict, const char* key) {
  const auto* object = dict.at(key).get_if<Object>();
  if (object == nullptr) throw CheckpointError(std::string(key) + " is a " + dict.at(key).kind());
  return *object;
}

/// Runs the script next to this file. It uses the Python in the variable PYTHON, or the system's.
class ObjectsOfPython : public ::testing::Test {
 protected:
  void SetUp() override {
    if (::access(python_.c_str(), X_OK) != 0) GTEST_SKIP() << "this machine has no Python";
  }

  void run(const std::string& arguments) const {
    const std::string log = (folder_ / "log").string();
    const std::string script =
        (testing::source_folder() / "tests/checkpoint/pickle/objects_of_python.py").string();
    const std::string command =
        "cd '" + folder_.path().string() + "' && '" + python_ + "' '" + script + "' " + arguments;
    EXPECT_EQ(std::system((command + " >log 2>&1").c_str()), 0)
        << command << "\n"
        << std::string(std::istreambuf_iterator<char>(std::ifstream(log).rdbuf()), {});
  }
  /// Reads Python's file and writes it again; both files hold the same values.
  void pass_on() const {
    const Value value = read_torch_archive(folder_ / "python.pt");
    write_torch_archive(folder_ / "ours.pt", value);
    EXPECT_TRUE(same(read_torch_archive(folder_ / "ours.pt"), value));
  }

  const std::string python_ = env::get("PYTHON").value_or("/usr/bin/python3");
  testing::TemporaryFolder folder_;
};

TEST_F(ObjectsOfPython, AreEqualAfterTheyPassedThroughOurFiles) {
  for (const char* protocol : {"2", "4", "5"}) {
    run(std::string("write python.pt ") + protocol);
    pass_on();
    run("compare ours.pt");
  }
}

TEST_F(ObjectsOfPython, ThatTorchMakesOfWeightsOnlyFilesAreStillSuch) {
  run("write_allowed python.pt");
  pass_on();
  run("compare_allowed ours.pt");
}

TEST(GoldenObjects, AreReadAsTheirReduceDescribesThem) {
  const Value value = read_torch_archive(testing::source_folder() / "tests/golden/torch_archive/objects.pt");
  const Dict& file = value.as_dict();
  EXPECT_TRUE(same(written_and_read(value), value));
  EXPECT_TRUE(same(file.at("complex"), std::complex<double>(1, -2)));
  EXPECT_TRUE(same(file.at("bytearray"), ByteArray{{0, 255}}));
  std::vector<uint8_t> bits(13);  // 2^100
  bits[12] = 0x10;
  EXPECT_TRUE(same(file.at("long"), BigInt{bits}));
  EXPECT_EQ(file.at("edges").as_sequence()[0].as_int(), std::numeric_limits<int64_t>::max());
  EXPECT_EQ(file.at("edges").as_sequence()[1].kind(), "int beyond 64 bits");
  EXPECT_EQ(file.at("edges").as_sequence()[2].as_int(), std::numeric_limits<int64_t>::min());
  EXPECT_TRUE(same(file.at("frozenset").get_if<FrozenSet>() != nullptr, true));
  const auto& classes = file.at("classes").as_sequence();
  EXPECT_TRUE(same(classes[1], Global{"builtins", "int"})) << "protocol 2 has it as __builtin__.long";
  EXPECT_TRUE(same(classes[4], Global{"__main__", "Outer.Inner"}));
  EXPECT_TRUE(same(object_at(file, "enum"), Object{"__main__", "Color", {1}, nullptr}));

  const Object& point = object_at(file, "dataclass");
  EXPECT_EQ(point.making, Object::Making::kNew);
  EXPECT_EQ(point.state->as_dict().at("x").as_double(), 0.5);
  const Object& grouped = object_at(file, "defaultdict");
  EXPECT_TRUE(same(grouped.arguments[0], Global{"builtins", "list"}));
  ASSERT_EQ(grouped.dict_items.size(), 2U);
  EXPECT_TRUE(same(grouped.dict_items[1].first, Tuple{{1, "b"}}));
  EXPECT_EQ(object_at(file, "deque").list_items.size(), 3U);
  EXPECT_EQ(object_at(file, "words").list_items.size(), 2U);
  EXPECT_EQ(file.at("by_tuple").as_dict().size(), 7U);

  const Object& array = object_at(file, "array");
  EXPECT_EQ(array.name, "_reconstruct");
  EXPECT_TRUE(same(array.arguments[0], Global{"numpy", "ndarray"}));
  EXPECT_EQ(array.state->as_sequence()[1].as_size(), (std::vector<int64_t>{3, 4}));
  EXPECT_EQ(object_at(file, "tensor_inside").state->as_dict().at("x").as_tensor().numel(), 3);
}

TEST(Objects, OfEveryFormAreKept) {
  const Object constructor{"builtins", "getattr", {Object{"m", "C", {1}, nullptr}, "make"}, nullptr};
  Object called{"", "", {2}, nullptr};
  called.callable = part(constructor);
  const Value value = List{
      called,
      Object{"m", "C", {1, "x"}, part(Tuple{{None{}, Dict{{"slot", 1}}}}), Object::Making::kNew},
      Object{"m", "Outer.C", {1}, nullptr, Object::Making::kNewWithKeywords, {{"size", 4}}},
      Object{"m", "C", {1}, nullptr, Object::Making::kNewWithKeywords},
      Object{"m", "Both", {}, part(7), Object::Making::kCall, {}, {1, 2}, {{"k", 3}, {Tuple{{1}}, 4}}},
      Global{"m.inner", "Outer.Middle.Inner"},
      Global{"m.inner", "Outer"},
      Dict{{Global{"m", "C"}, 1}, {BigInt{std::vector<uint8_t>(300, 0x7F)}, 2}},
      FrozenSet{{1, FrozenSet{{2}}}},
  };
  EXPECT_TRUE(same(written_and_read(value), value));
}

TEST(Objects, TakeTensorsIntoTheFileOnceEach) {
  const at::Tensor weight = at::arange(40'000, at::kFloat);
  Object object{"m", "C", {weight}, part(List{weight}), Object::Making::kNewWithKeywords, {{"w", weight}}};
  object.list_items = {weight};
  object.dict_items = {{"w", weight}};
  const Value value = List{object, FrozenSet{{weight}}};
  const testing::TemporaryFolder folder;
  write_torch_archive(folder / "file.pt", value);
  EXPECT_LT(std::filesystem::file_size(folder / "file.pt"), 2 * weight.nbytes());
  const DeferredArchive archive(folder / "file.pt");
  EXPECT_TRUE(archive.value().as_sequence()[0].get_if<Object>()->arguments[0].as_tensor().is_meta());
  EXPECT_TRUE(same(archive.load(archive.value()), value));
  EXPECT_TRUE(
      archive.value().as_sequence()[0].get_if<Object>()->state->as_sequence()[0].as_tensor().is_meta())
      << "what was read stays as it was";
}

TEST(Objects, WithNamesThatNoReaderTakesAreRefused) {
  for (const std::string& name :
       {std::string(), std::string("a\nb"), std::string(2000, 'n'), std::string("\xff")}) {
    EXPECT_ERROR(UsageError, written_and_read(Global{"m", name}),
                 "a class or a function cannot have the name", "at most 1000 bytes of UTF-8 in one line");
    EXPECT_ERROR(UsageError, written_and_read(Object{name, "C", {}, nullptr}), "cannot have the name");
  }
}

TEST(Objects, StandWhereAnotherValueIsExpectedAsAnErrorThatNamesThem) {
  const Value object = Object{"numpy", "int64", {}, nullptr}, global = Global{"os", "system"};
  EXPECT_ERROR(CheckpointError, object.as_int(), "whole number", "numpy.int64");
  EXPECT_ERROR(CheckpointError, global.as_tensor(), "tensor", "class or function os.system");
  EXPECT_ERROR(CheckpointError, Value(BigInt{std::vector<uint8_t>(9, 1)}).as_int(), "whole number",
               "int beyond 64 bits");
  Object called;
  called.callable = part(object);
  EXPECT_ERROR(CheckpointError, Value(called).as_dict(), "dict", "result of a numpy.int64");
}

}  // namespace
}  // namespace deepspeed::checkpoint
